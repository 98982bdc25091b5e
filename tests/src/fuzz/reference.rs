//! Decoders again, slow and plain, to compare with.

/// The maximal runs of ASCII letters, lower-cased.
pub(super) fn words(line: &str) -> Vec<String> {
    let runs = line.split(|c: char| !c.is_ascii_alphabetic()).filter(|run| !run.is_empty());
    runs.map(str::to_ascii_lowercase).collect()
}

/// Where each line begins, and its bytes without LF or CRLF; a byte order mark at the beginning is no part of any.
pub(super) fn lines(bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut at = if bytes.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
    let mut lines = Vec::new();
    while at < bytes.len() {
        let end = bytes[at..].iter().position(|&byte| byte == b'\n').map(|n| at + n);
        let line = &bytes[at..end.unwrap_or(bytes.len())];
        let line = if end.is_some() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        lines.push((at as u64, line.to_vec()));
        at = end.map_or(bytes.len(), |end| end + 1);
    }
    lines
}

/// The columns of a row; none if its quotes don't match.
pub(super) fn columns(line: &str, delimiter: char) -> Option<Vec<String>> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut chars = line.chars().peekable();
    let mut columns = Vec::new();
    loop {
        let mut column = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' if chars.next_if_eq(&'"').is_some() => column.push('"'),
                    '"' => break,
                    other => column.push(other),
                }
            }
        } else {
            while let Some(other) = chars.next_if(|&c| c != delimiter) {
                column.push(other);
            }
        }
        columns.push(column);
        match chars.next() {
            None => return Some(columns),
            Some(c) if c == delimiter => {}
            Some(_) => return None,
        }
    }
}

/// Text in which `%XX` is a byte; none if the digits are none or the bytes no text.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = bytes.get(at + 1..at + 3)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}
