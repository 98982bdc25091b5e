//! What must hold for the repository as a whole: the levels of imports, where unsafe code and locks may be, file headers
//! and lengths, and that the README shows code that compiles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{code_of, crate_paths, has_word};

pub(crate) mod source;

/// The engine's modules, from the lowest level up. A file uses lower levels and its own module; the single files of the
/// lowest level use each other, and so do the parts of chains.
const LEVELS: &[&[&str]] = &[
    &["error", "id", "clock", "config", "topology", "probe", "pace"],
    &["record", "metrics"],
    &["channel", "state", "control"],
    &["barrier"],
    &["operator", "source", "sink", "time", "text", "testing"],
    &["task"],
    &["graph"],
    &["runtime"],
    &["rest", "driver"],
    &["job", "cli", "decoders"],
];

/// The levels whose modules use each other: single files, and the parts of chains.
const OPEN_LEVELS: &[usize] = &[0, 4];

/// The files that may hold unsafe code: raw memory of records and state, a mapped file, and allocators that count.
const UNSAFE_FILES: &[&str] = &[
    "netstack/src/ring.rs",
    "netstack/src/segment.rs",
    "netstack/benches/ring.rs",
    "netstack/tests/steady_state.rs",
    "engine/src/record/bits.rs",
    "engine/src/record/codec.rs",
    "engine/src/record/load.rs",
    "engine/src/state/arena.rs",
    "engine/src/state/chunk.rs",
    "engine/src/state/places.rs",
    "engine/src/state/segment.rs",
    "engine/src/state/spill.rs",
    "engine/src/text.rs",
    "tests/tests/allocations/counting.rs",
];

/// Where no thread may wait for another: the path of a record and of a barrier.
const LOCK_FREE: &[&str] = &[
    "netstack/src/ring.rs",
    "netstack/src/lane.rs",
    "netstack/src/pool.rs",
    "netstack/src/segment.rs",
    "engine/src/channel",
    "engine/src/barrier",
    "engine/src/task",
];

const LINES_MAX: usize = 600;

/// Longer files, with the reason.
const LONG_FILES: &[(&str, &str)] = &[(
    "engine/src/record/codec.rs",
    "all reading and writing of records' raw memory is in one file",
)];

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        let Some(inside) = path.strip_prefix("engine/src/") else { continue };
        let module = inside.split('/').next().expect("a split has a first part");
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if matches!(module, "lib" | "bin") {
            continue;
        }
        let Some(level) = level_of(module) else {
            wrong.push(format!("{path}: module '{module}' is in no level"));
            continue;
        };
        for used in crate_paths(&code_of(&text)) {
            let Some(of_used) = level_of(&used) else { continue };
            let is_level_open = level == of_used && OPEN_LEVELS.contains(&level);
            let is_below = of_used < level || is_level_open || used == module;
            if !is_below {
                wrong.push(format!("{path}: '{module}' (L{level}) uses '{used}' (L{of_used})"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_module_of_the_levels_is_named_once() {
    let all: Vec<_> = LEVELS.iter().flat_map(|level| level.iter()).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!((level_of("error"), level_of("cli"), level_of("none")), (Some(0), Some(9), None));
}

#[test]
fn unsafe_code_is_in_the_listed_files_only() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        let code = code_of(&text);
        let lifts = has_word(&code, "unsafe_code");
        if UNSAFE_FILES.contains(&path.as_str()) {
            let says_why = words_of(&text).contains("#![expect(unsafe_code,reason=");
            if has_word(&code, "unsafe") && !says_why {
                wrong.push(format!("{path}: does not say why it has unsafe code"));
            }
        } else if has_word(&code, "unsafe") || lifts {
            wrong.push(format!("{path}: unsafe code outside the listed files"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn nobody_waits_for_a_lock_on_the_path_of_a_record() {
    // A barrier is an event here, no lock.
    let waiting = ["Mutex", "RwLock", "Condvar", "mpsc", "Once", "OnceLock", "LazyLock"];
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        if LOCK_FREE.iter().any(|place| Path::new(&path).starts_with(place)) {
            // A file's tests may wait.
            let code = code_of(&text);
            let code = code.split("mod tests").next().unwrap_or_default();
            let found = waiting.iter().filter(|&&word| has_word(code, word));
            wrong.extend(found.map(|word| format!("{path}: {word}")));
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        if !text.starts_with("//!") {
            wrong.push(format!("{path}: does not open with //!"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX && LONG_FILES.iter().all(|(long, _)| *long != path) {
            wrong.push(format!("{path}: {lines} lines, more than {LINES_MAX}"));
        }
        // The macros' attribute is written so that this file doesn't find itself.
        if code_of(&text).contains(concat!("todo", "!(")) {
            wrong.push(format!("{path}: something is left to do"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_file_names_a_machine() {
    let homes = ["work", "root", "home"].map(|name| format!("/{name}/"));
    let mut wrong = Vec::new();
    for (path, text) in text_files() {
        for (number, line) in text.lines().enumerate() {
            let found = homes.iter().any(|home| {
                // A path begins there: nothing that could be the end of another name stands before it.
                line.match_indices(home.as_str()).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c))
                })
            });
            if found {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none(&wrong);
}

/// A code block below a marker `<!-- PATH -->` is that file; the word count is shown once there is its example.
#[test]
fn the_readme_shows_files_that_compile() {
    const WORD_COUNT: &str = "engine/examples/wordcount.rs";
    let readme = read(&root().join("README.md"));
    let shown = marked_blocks(&readme);
    for (path, block) in &shown {
        assert_eq!(read(&root().join(path)).trim(), block.trim(), "README.md differs from {path}");
    }
    let has_example = root().join(WORD_COUNT).exists();
    assert_eq!(has_example, shown.iter().any(|(path, _)| path == WORD_COUNT), "{WORD_COUNT}");
}

#[test]
fn marked_blocks_are_found() {
    let text =
        "a\n<!-- x/y.rs -->\n```rust\nfn f() {}\n```\n```rust\nnot marked\n```\n<!-- note -->\n";
    assert_eq!(marked_blocks(text), [("x/y.rs".to_owned(), "fn f() {}\n".to_owned())]);
}

/// The code blocks below markers that name a file, with the file's path.
fn marked_blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for part in text.split("<!-- ").skip(1) {
        let Some((path, rest)) = part.split_once(" -->\n```rust\n") else { continue };
        let block = rest.split("```").next().unwrap_or_default();
        blocks.push((path.to_owned(), block.to_owned()));
    }
    blocks
}

fn level_of(module: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&module))
}

/// A text without blanks and line breaks.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect()
}

pub(crate) fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Where the workspace is.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the package is a folder of the workspace").to_owned()
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each Rust file's path from the root, and its text.
pub(crate) fn rust_files() -> Vec<(String, String)> {
    let mut files = text_files();
    files.retain(|(path, _)| path.ends_with(".rs"));
    assert!(files.len() > 20, "the repository has more Rust files than that");
    files
}

/// Each text file's path from the root, and its text.
fn text_files() -> Vec<(String, String)> {
    let (root, mut files) = (root(), Vec::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).expect("the repository can be read");
        for entry in entries {
            let path = entry.expect("the repository can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | "out" | ".git" | ".venv") {
                    folders.push(path);
                }
                continue;
            }
            let is_text = [".rs", ".md", ".toml", ".sh", ".py", ".yaml", ".yml", ".stderr"]
                .iter()
                .any(|end| name.ends_with(end));
            if is_text || name == "run" {
                let inside = path.strip_prefix(&root).expect("the walk began there");
                files.push((inside.to_string_lossy().into_owned(), read(&path)));
            }
        }
    }
    files.sort();
    files
}
