//! Tables for people: columns as wide as their widest cell.

use std::io::Write;

use serde_json::Value;

use super::no_output;
use crate::error::Result;

/// Writes a table.
///
/// # Errors
/// Those of the stream.
pub(super) fn table<const N: usize>(
    out: &mut dyn Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> Result<()> {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", text.trim_end()).map_err(no_output)
    };
    line(head)?;
    rows.iter().try_for_each(|row| line(row.each_ref().map(String::as_str)))
}

/// A value as a cell: text without quotes and control characters, nothing for null.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        let rows = [["a".to_owned(), "bcd".to_owned()], ["long".to_owned(), String::new()]];
        table(&mut out, ["X", "Y"], &rows).expect("a vector takes all");
        assert_eq!(String::from_utf8(out).expect("text"), "X     Y\na     bcd\nlong\n");
        assert_eq!(cell(&json!(["v0[0]", 1, null])), "v0[0],1,");
        assert_eq!(cell(&json!("a\u{1b}[31m")), "a [31m");
    }
}
