//! Query parameters: those that a route knows, each once, each of its type; all else is an error.

use super::answer::Answer;

/// What values a parameter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) is_required: bool,
}

/// The parameters of one request, as they were checked.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// 400: a parameter is unknown, doubled, missing, or not of its type.
    pub(super) fn parse(text: &str, known: &[Parameter]) -> Result<Self, Answer> {
        let refused = |why: String| Answer::error(400, why);
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(name).zip(decode(value));
            let Some((name, value)) = decoded else {
                return Err(refused("the query is not percent-encoded UTF-8".into()));
            };
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                return Err(refused(format!("there is no parameter '{}' here", shown(&name))));
            };
            if found.iter().any(|(known, _)| *known == parameter.name) {
                return Err(refused(format!("'{}' is there twice", parameter.name)));
            }
            if let Some(expected) = mistake(parameter.kind, &value) {
                return Err(refused(format!("'{}' must be {expected}", parameter.name)));
            }
            found.push((parameter.name, value));
        }
        let is_missing = |name| found.iter().all(|(known, _)| *known != name);
        match known.iter().find(|parameter| parameter.is_required && is_missing(parameter.name)) {
            Some(parameter) => Err(refused(format!("'{}' is missing", parameter.name))),
            None => Ok(Self(found)),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// A number, if it is there.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The flags in the form that the blocklist reads.
    pub(super) fn flags(&self) -> String {
        let flags = self.0.iter().filter(|(_, value)| value == "true");
        flags.map(|(name, _)| format!("{name}=true")).collect::<Vec<_>>().join("&")
    }

    /// The part of a list that was asked for.
    pub(super) fn page<T>(&self, mut list: Vec<T>) -> Vec<T> {
        let most = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let offset = most(self.number("offset").unwrap_or(0)).min(list.len());
        list.drain(..offset);
        list.truncate(most(self.number("limit").unwrap_or(LIMIT)));
        list
    }
}

/// So many entries of a list are told if the request says nothing.
pub(super) const LIMIT: u64 = 100;
/// At most so many are told.
pub(super) const LIMIT_MAX: u64 = 10_000;

/// What the value should be, if it isn't.
fn mistake(kind: Kind, value: &str) -> Option<String> {
    match kind {
        Kind::Flag => (!matches!(value, "true" | "false")).then(|| "true or false".into()),
        Kind::Number(least, most) => {
            let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<u64>().ok().filter(|_| is_digits);
            let is_right = number.is_some_and(|number| (least..=most).contains(&number));
            (!is_right).then(|| format!("a whole number from {least} to {most}"))
        }
        Kind::Word(words) => (!words.contains(&value)).then(|| words.join(" or ")),
    }
}

/// Percent-decoded UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// `decode`, for those who feed it text from anywhere.
#[cfg(feature = "simulation")]
pub fn query_decoded(text: &str) -> Option<String> {
    decode(text)
}

/// A text as an error may repeat it.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "force", kind: Kind::Flag, help: "x", is_required: false },
        Parameter { name: "limit", kind: Kind::Number(1, 10), help: "x", is_required: false },
        Parameter { name: "mode", kind: Kind::Word(&["cancel"]), help: "x", is_required: true },
    ];

    #[test]
    fn only_what_a_route_knows_is_read() {
        let query = Query::parse("mode=cancel&force=%74rue&limit=7", KNOWN).expect("is right");
        assert_eq!(query.number("limit"), Some(7));
        assert_eq!(query.flags(), "force=true");
        for wrong in [
            "",
            "mode=cancel&force=yes",
            "mode=stop",
            "mode=cancel&limit=0",
            "mode=cancel&limit=11",
            "mode=cancel&limit=%2B1",
            "mode=cancel&limit=",
            "mode=cancel&mode=cancel",
            "mode=cancel&x=1",
            "mode=cancel&%",
            "mode=cancel&%ff=1",
        ] {
            assert_eq!(Query::parse(wrong, KNOWN).expect_err(wrong).status, 400);
        }
    }

    #[test]
    fn a_page_is_a_part_of_the_list() {
        let known = super::super::routes::PAGE;
        let page = |text| Query::parse(text, known).expect("is right").page((0..5).collect());
        assert_eq!(page("offset=1&limit=2"), [1, 2]);
        assert_eq!(page("offset=4"), [4]);
        assert!(page("offset=9").is_empty());
    }
}
