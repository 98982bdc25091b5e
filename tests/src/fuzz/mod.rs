//! What every decoder must do with bytes from anywhere: never panic, err with a typed error, and read its own answer
//! again as the same.
//!
//! A target's body is a plain function, so that both libFuzzer (`tests/fuzz`, which needs a nightly toolchain) and an
//! ordinary test (`tests/tests/fuzz`) run it. Its corpus is `tests/fuzz/corpus/<name>`: seeds made from the real
//! encoders by `cargo run -p tidegate-tests -- corpus`, and inputs that once broke something, under telling names.

use std::cell::Cell;

pub mod corpus;
mod frames;
mod inputs;
pub mod mutate;
mod options;
mod outputs;
mod reference;
mod rest;
mod snapshots;
mod tables;

/// A seed's name and bytes.
pub type Seed = (&'static str, Vec<u8>);

/// A decoder and what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus folder and of its binary.
    pub name: &'static str,
    /// Panics if the decoder breaks a promise.
    pub run: fn(&[u8]),
    /// Inputs made by the encoder.
    pub seeds: fn() -> Vec<Seed>,
    /// Puts checksums and lengths right after a mutation, so that what lies behind them is reached.
    pub repair: Option<fn(&mut Vec<u8>)>,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Seed>) -> Self {
        Self { name, run, seeds, repair: None }
    }

    const fn repaired(self, repair: fn(&mut Vec<u8>)) -> Self {
        Self { repair: Some(repair), ..self }
    }
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    Target::new("block_heads", snapshots::block_heads, snapshots::block_head_seeds)
        .repaired(snapshots::repair_blocks),
    Target::new("blocklist_options", options::blocklist, options::blocklist_seeds),
    Target::new("blocklist_rest", rest::blocklist, rest::seeds),
    Target::new("blocks", snapshots::blocks, snapshots::block_seeds)
        .repaired(snapshots::repair_blocks),
    Target::new("config", options::config, options::config_seeds),
    Target::new("config_toml", options::toml, options::toml_seeds),
    Target::new("csv_fields", inputs::csv_fields, inputs::csv_field_seeds),
    Target::new("csv_rows", inputs::csv_rows, inputs::csv_row_seeds),
    Target::new("frames", frames::frames, frames::seeds),
    Target::new("in_flight_events", outputs::events, outputs::event_seeds),
    Target::new("json_lines", inputs::json_lines, inputs::json_seeds),
    Target::new("lines", inputs::lines, inputs::line_seeds),
    Target::new("manifest", snapshots::manifest, snapshots::manifest_seeds)
        .repaired(snapshots::repair_manifest),
    Target::new("object_names", snapshots::object_names, snapshots::object_name_seeds),
    Target::new("prepared_parts", outputs::prepared_parts, outputs::prepared_seeds),
    Target::new("rest_queries", rest::queries, rest::query_seeds),
    Target::new("rules", options::rules, options::rule_seeds),
    Target::new("serde_records", frames::serde_records, frames::serde_seeds),
    Target::new("small_files", snapshots::small_files, snapshots::small_file_seeds)
        .repaired(snapshots::repair_small_file),
    Target::new("splits", inputs::splits, inputs::split_seeds),
    Target::new("state_lists", snapshots::state_lists, snapshots::state_list_seeds),
    Target::new("state_tables", tables::tables, tables::seeds),
    Target::new("window_panes", outputs::panes, outputs::pane_seeds),
    Target::new("words", inputs::words, inputs::word_seeds),
];

thread_local! {
    static ACCEPTED: Cell<u64> = const { Cell::new(0) };
}

/// How many inputs decoders have taken on this thread.
pub fn accepted() -> u64 {
    ACCEPTED.get()
}

/// A decoder has taken an input: what lies behind its checks is reached.
fn accept() {
    ACCEPTED.set(ACCEPTED.get() + 1);
}

/// The target of that name.
///
/// # Panics
/// If there is none.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("there is no target '{name}'")).run)(bytes);
}

/// As much of `bytes` as is text, and one byte in front that chooses among variants.
fn variant_and_text(bytes: &[u8]) -> Option<(u8, &str)> {
    let (&variant, text) = bytes.split_first()?;
    Some((variant, std::str::from_utf8(text).ok()?))
}

/// A seed that is a text behind the byte of its variant.
fn text_seed(name: &'static str, variant: u8, text: &str) -> Seed {
    (name, [&[variant], text.as_bytes()].concat())
}
