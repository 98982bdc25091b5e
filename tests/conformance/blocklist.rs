//! Every scenario of the blocklist has a test whose name begins with its id, except those left for later.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const IDS: &str = include_str!("blocklist-ids.txt");

/// The ids that test names under `folder` begin with.
fn shown(folder: &Path, ids: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are beside this package") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            shown(&path, ids);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('_'));
            ids.extend(names.map(|(id, _)| id.to_owned()));
        }
    }
}

#[test]
fn every_scenario_is_shown_or_left_for_later() {
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    shown(&root.join("../engine/src"), &mut found);
    shown(root, &mut found);
    let lines = IDS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let (mut missing, mut stale, mut count) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        count += 1;
        match line.split_once(" later: ") {
            None if !found.contains(line) => missing.push(line),
            Some((id, _)) if found.contains(id) => stale.push(id),
            None | Some(_) => {}
        }
    }
    assert!(count > 130, "the list was cut: {count}");
    assert!(missing.is_empty(), "no test begins with {missing:?}");
    assert!(stale.is_empty(), "shown, but listed for later: {stale:?}");
}
