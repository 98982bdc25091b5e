//! How rules match texts: behind a trait, so that the engine needs no regular expressions without the feature `rules`.

use std::fmt;

/// A compiled pattern.
pub trait Pattern: Send + fmt::Debug {
    /// Whether the text contains a match.
    fn is_match(&self, text: &str) -> bool;
}

/// Compiles patterns.
pub trait PatternCompiler: Send + Sync {
    /// The pattern written `source`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn compile(&self, source: &str) -> Result<Box<dyn Pattern>, String>;
}

/// Regular expressions, matched in linear time.
#[cfg(feature = "rules")]
#[derive(Clone, Copy, Debug, Default)]
pub struct RegexLite;

#[cfg(feature = "rules")]
impl Pattern for regex_lite::Regex {
    fn is_match(&self, text: &str) -> bool {
        Self::is_match(self, text)
    }
}

#[cfg(feature = "rules")]
impl PatternCompiler for RegexLite {
    fn compile(&self, source: &str) -> Result<Box<dyn Pattern>, String> {
        let builder = regex_lite::RegexBuilder::new(source).size_limit(1 << 20).build();
        builder.map(|regex| Box::new(regex) as Box<dyn Pattern>).map_err(|error| error.to_string())
    }
}
