//! One JSON object on one line, written field by field.

use std::fmt::{Display, Write as _};

/// The object so far.
#[derive(Debug)]
pub struct Line(String);

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    /// An object without fields.
    pub fn new() -> Self {
        Self(String::from("{"))
    }

    /// A field whose value is shown as it is: a number, `null`, `true`.
    #[must_use]
    pub fn raw(mut self, key: &str, value: impl Display) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let written = write!(self.0, "\"{key}\":{value}");
        written.expect("a string takes all");
        self
    }

    /// A field with a text.
    #[must_use]
    pub fn text(self, key: &str, value: &str) -> Self {
        let mut quoted = String::from("\"");
        for c in value.chars() {
            match c {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", c as u32)),
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        self.raw(key, quoted)
    }

    /// A field with a number of so many decimals; `null` if there is none.
    #[must_use]
    pub fn decimals(self, key: &str, value: Option<f64>, decimals: usize) -> Self {
        match value.filter(|value| value.is_finite()) {
            Some(value) => self.raw(key, format_args!("{value:.decimals$}")),
            None => self.raw(key, "null"),
        }
    }

    /// The line, without its break.
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_texts_are_escaped() {
        let line = Line::new()
            .text("a", "x\"\\\n")
            .raw("b", 1)
            .decimals("c", Some(1.25), 1)
            .decimals("d", None, 1)
            .decimals("e", Some(f64::NAN), 1);
        let text = r#"{"a":"x\"\\\u000a","b":1,"c":1.2,"d":null,"e":null}"#;
        assert_eq!(line.end(), text);
        assert_eq!(Line::new().end(), "{}");
    }
}
