//! Rust source as far as the checks need it: code without comments, strings and test modules, and the paths in it.

/// The code of a file that is no test: all from a test module on, which stands last in its file, is left out.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = with_tests(text);
    if let Some(tests) = code.find("#[cfg(test)]\nmod tests {") {
        code.truncate(tests);
    }
    code
}

/// The code of a file without comments and the contents of strings.
pub(crate) fn with_tests(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            code.push_str("\"\"");
            string_len(rest)
        } else if let Some(len) = raw_string_len(rest).filter(|_| !ends_in_name(&code)) {
            code.push_str("\"\"");
            len
        } else if let Some(len) = char_len(rest) {
            code.push_str("' '");
            len
        } else {
            code.push(first);
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    code
}

/// Bytes of a string literal that begins here.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Bytes of a raw string literal, if one begins here.
fn raw_string_len(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?.bytes().take_while(|&byte| byte == b'#').count();
    let start = 1 + hashes;
    text[start..].starts_with('"').then_some(())?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(text[start + 1..].find(&close).map_or(text.len(), |end| start + 1 + end + close.len()))
}

/// Bytes of a character literal, if one begins here; a lifetime is none.
fn char_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut chars = inside.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        let (_, escaped) = chars.next()?;
        let from = 1 + escaped.len_utf8();
        return Some(1 + from + inside[from..].find('\'')? + 1);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(1 + at + 1)
}

fn ends_in_name(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Whether a word stands in code by itself.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(is_name) && !code[at + word.len()..].starts_with(is_name)
    })
}

/// The modules that paths from the crate's root lead into: `a` and `b` of `use crate::{a, b::c}`.
pub(crate) fn crate_paths(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for start in ["crate::", "tidegate::"] {
        for (at, _) in code.match_indices(start) {
            if ends_in_name(&code[..at]) {
                continue;
            }
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => modules.extend(first_names(group)),
                None => modules.push(name(rest)),
            }
        }
    }
    modules
}

/// The first name of each path in a group whose opening brace is cut off.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn name(text: &str) -> String {
    text.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect()
}

#[test]
fn code_is_without_comments_strings_and_tests() {
    let text = "let a = \"// no \\\" unsafe\"; // unsafe\n/* unsafe */ let b = r#\"\"unsafe\"#;\nlet c = '\"';\nfn f<'a>() {}\n";
    let code = code_of(&format!("{text}#[cfg(test)]\nmod tests {{ unsafe {{}} }}"));
    assert!(!has_word(&code, "unsafe"), "{code}");
    assert!(code.contains("let b") && code.contains("fn f<'a>() {}"), "{code}");
    assert!(has_word("unsafe fn", "unsafe") && !has_word("unsafe_code", "unsafe"));
}

#[test]
fn paths_from_the_root_are_found_in_groups_too() {
    let code =
        "use crate::{a, b::{c, d}, e::f};\nuse crate::g::h; pub(crate) fn i() { crate::j() }";
    assert_eq!(crate_paths(code), ["a", "b", "e", "g", "j"]);
    assert_eq!(crate_paths("use tidegate_netstack::x; use tidegate::y;"), ["y"]);
}
