//! That each decoder has a target, and each target a corpus and a binary for libFuzzer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_tests::fuzz::{TARGETS, corpus};

/// Where bytes or text from outside become values, with the targets that reach it.
const DECODERS: &[(&str, &[&str])] = &[
    ("engine/src/config.rs", &["config", "config_toml"]),
    ("engine/src/config/value.rs", &["config", "config_toml"]),
    ("engine/src/control/blocklist/health.rs", &["blocklist_options"]),
    ("engine/src/control/blocklist/item.rs", &["blocklist_rest"]),
    ("engine/src/control/blocklist/options.rs", &["blocklist_options"]),
    ("engine/src/control/blocklist/rest/mod.rs", &["blocklist_rest"]),
    ("engine/src/control/blocklist/rest/parse.rs", &["blocklist_rest"]),
    ("engine/src/control/blocklist/rules.rs", &["rules"]),
    ("engine/src/record/codec.rs", &["frames", "serde_records"]),
    ("engine/src/record/serde.rs", &["serde_records"]),
    ("engine/src/rest/query.rs", &["rest_queries"]),
    ("engine/src/runtime/in_flight.rs", &["in_flight_events"]),
    ("engine/src/sink/files/part.rs", &["prepared_parts"]),
    ("engine/src/source/columns.rs", &["csv_rows"]),
    ("engine/src/source/csv_field.rs", &["csv_fields"]),
    ("engine/src/source/csv_row.rs", &["csv_rows"]),
    ("engine/src/source/generate.rs", &["splits"]),
    ("engine/src/source/json.rs", &["json_lines"]),
    ("engine/src/source/lines.rs", &["lines"]),
    ("engine/src/source/split.rs", &["splits"]),
    ("engine/src/source/text.rs", &["splits"]),
    ("engine/src/state/block.rs", &["block_heads", "blocks"]),
    ("engine/src/state/block_io.rs", &["blocks"]),
    ("engine/src/state/manifest_codec.rs", &["manifest"]),
    ("engine/src/state/owner.rs", &["small_files"]),
    ("engine/src/state/part.rs", &["state_lists"]),
    ("engine/src/state/restore.rs", &["state_tables"]),
    ("engine/src/state/store.rs", &["object_names"]),
    ("engine/src/text.rs", &["words"]),
    ("engine/src/time/window_logic.rs", &["window_panes"]),
];

/// Functions of such a name that decode nothing, with what they do.
const NO_DECODERS: &[(&str, &str)] = &[
    ("engine/src/record/data.rs", "the trait: views of what a codec has read"),
    ("engine/src/record/plain.rs", "views of what a codec has read"),
    ("engine/src/record/derived.rs", "views of what a codec has read"),
    ("engine/src/time/window.rs", "a view of what a codec has read"),
    ("engine/src/cli.rs", "clap's"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether a line declares a function whose name says that it reads something.
fn declares_a_decoder(line: &str) -> bool {
    let Some((before, after)) = line.split_once("fn ") else { return false };
    let is_code = before.trim().split(' ').all(|word| {
        matches!(word, "" | "pub" | "pub(super)" | "pub(crate)" | "const" | "async" | "unsafe")
    });
    let name: String = after.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
    let says_so = ["decode", "parse", "from_bytes", "from_wire", "from_code", "from_str"];
    is_code && says_so.iter().any(|word| name.starts_with(word))
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources can be read") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_decoder_has_a_target() {
    let (root, mut files) = (root(), Vec::new());
    rust_files(&root.join("engine/src"), &mut files);
    let mut missing = Vec::new();
    for path in files {
        let inside = path.strip_prefix(&root).expect("the walk began there").to_string_lossy();
        let text = fs::read_to_string(&path).expect("the sources can be read");
        let code = text.split("mod tests {").next().unwrap_or_default();
        let is_listed = DECODERS.iter().any(|(file, _)| *file == inside)
            || NO_DECODERS.iter().any(|(file, _)| *file == inside)
            || inside.contains("test")
            || inside.contains("scenarios");
        if !is_listed && code.lines().any(declares_a_decoder) {
            missing.push(inside.into_owned());
        }
    }
    assert!(missing.is_empty(), "decoders without a fuzz target: {missing:#?}");
}

#[test]
fn every_target_is_reached_from_the_list_and_has_a_corpus_and_a_binary() {
    let listed: BTreeSet<_> = DECODERS.iter().flat_map(|(_, targets)| *targets).copied().collect();
    let targets: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(listed, targets);
    for (file, _) in DECODERS.iter().map(|(file, targets)| (file, targets)) {
        assert!(root().join(file).exists(), "{file} is gone");
    }
    let manifest = fs::read_to_string(root().join("tests/fuzz/Cargo.toml")).expect("it is there");
    for target in TARGETS {
        let inputs = corpus::read(target).map_or(0, |inputs| inputs.len());
        assert!(inputs > 0, "{} has no corpus", target.name);
        let binary = format!("fuzz_targets/{}.rs", target.name);
        assert!(manifest.contains(&binary), "{binary} is not in tests/fuzz/Cargo.toml");
        let source = fs::read_to_string(root().join("tests/fuzz").join(&binary));
        let source = source.unwrap_or_else(|error| panic!("{binary}: {error}"));
        assert!(source.contains(&format!("\"{}\"", target.name)), "{binary} runs another target");
    }
}
