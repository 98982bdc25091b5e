//! Which strategies there are, by the id that the configuration names them with.
//!
//! Embedders register their own factories beside the built-in ones. Used once at start.

use std::collections::BTreeMap;
use std::fmt;

use super::options::OptionError;
use super::strategy::{BlocklistStrategy, NoOpBlocklistStrategy};
use crate::control::blocklist::health::{HealthOptions, HealthStrategy};

/// Makes strategies of one kind.
pub trait BlocklistStrategyFactory: Send + Sync {
    /// What the configuration calls it.
    fn id(&self) -> &str;

    /// A strategy with these options (those under `strategy.`, without that prefix).
    ///
    /// # Errors
    /// If an option is unknown or its value is wrong; the error names it.
    fn create(
        &self,
        options: &BTreeMap<String, String>,
    ) -> Result<Box<dyn BlocklistStrategy>, OptionError>;
}

/// All known strategies.
pub struct StrategyRegistry(BTreeMap<String, Box<dyn BlocklistStrategyFactory>>);

impl StrategyRegistry {
    /// `noop`, `health`, and with the feature `rules` also `rules`.
    pub fn builtin() -> Self {
        let mut registry = Self(BTreeMap::new());
        registry.register(Box::new(NoOp));
        registry.register(Box::new(Health));
        #[cfg(feature = "rules")]
        registry.register(Box::new(super::rules::RulesFactory::new(super::pattern::RegexLite)));
        registry
    }

    /// Adds a factory; one with the same id is replaced.
    pub fn register(&mut self, factory: Box<dyn BlocklistStrategyFactory>) {
        self.0.insert(factory.id().to_owned(), factory);
    }

    /// The strategies of these ids. What follows the first colon of an id is its strategy's own option of that name:
    /// `plugin:/a/program` is `plugin` with the option `plugin` set to `/a/program`.
    ///
    /// # Errors
    /// If an id is unknown or its options are wrong.
    pub fn create(
        &self,
        ids: &[String],
        options: &BTreeMap<String, String>,
    ) -> Result<Vec<Box<dyn BlocklistStrategy>>, OptionError> {
        let create = |id: &String| {
            let Some((name, argument)) = id.split_once(':') else {
                return self.factory(id)?.create(options);
            };
            let mut options = options.clone();
            options.insert(name.to_owned(), argument.to_owned());
            self.factory(name)?.create(&options)
        };
        ids.iter().map(create).collect()
    }

    fn factory(&self, id: &str) -> Result<&dyn BlocklistStrategyFactory, OptionError> {
        self.0.get(id).map(Box::as_ref).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let key = format!("{}strategy", super::options::PREFIX);
            OptionError::bad(&key, id, format!("one of {}", known.join(", ")))
        })
    }
}

impl fmt::Debug for StrategyRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

struct NoOp;

impl BlocklistStrategyFactory for NoOp {
    fn id(&self) -> &'static str {
        "noop"
    }

    fn create(
        &self,
        _options: &BTreeMap<String, String>,
    ) -> Result<Box<dyn BlocklistStrategy>, OptionError> {
        Ok(Box::new(NoOpBlocklistStrategy))
    }
}

struct Health;

impl BlocklistStrategyFactory for Health {
    fn id(&self) -> &'static str {
        "health"
    }

    fn create(
        &self,
        options: &BTreeMap<String, String>,
    ) -> Result<Box<dyn BlocklistStrategy>, OptionError> {
        Ok(Box::new(HealthStrategy::new(HealthOptions::parse(options)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_strategy_is_refused_naming_the_known_ones() {
        let registry = StrategyRegistry::builtin();
        let error = registry.create(&["wat".into()], &BTreeMap::new()).expect_err("unknown");
        assert!(error.to_string().contains("noop"), "{error}");
        let made = registry.create(&["noop".into(), "health".into()], &BTreeMap::new());
        let names: Vec<_> = made.expect("known").iter().map(|s| s.name().to_owned()).collect();
        assert_eq!(names, ["noop", "health"]);
    }
}
