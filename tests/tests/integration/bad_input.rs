//! Bad input in whole jobs: the error says what is wrong and where, and nothing half-written becomes visible.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate::clock::EpochMillis;
use tidegate::config::Origin;
use tidegate::source::csv_row::CsvRow;
use tidegate::source::{OnBadRecord, csv_files, text_files};
use tidegate::{Config, Data, Error, ErrorKind, sink};

use crate::rig::{Gated, SOON, durable, fragile, job, lines_in, set, wait_for};

/// What the jobs of this file read of a row.
#[derive(Clone, Data, CsvRow)]
pub(crate) struct Departure {
    date: EpochMillis,
    delay: i32,
    origin: String,
}

/// A folder with the input `rows.csv` and the output `out`.
struct Place(tempfile::TempDir);

impl Place {
    fn new(rows: &[u8]) -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        fs::write(place.path("rows.csv"), rows).expect("it can be written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("the path is text").to_owned()
    }

    /// Reads `input` in two subtasks, and writes origins, with a checkpoint each few milliseconds.
    fn run(&self, input: &str, policy: OnBadRecord) -> Result<(), Error> {
        let mut job = fragile("bad input", 2);
        set(&mut job, "checkpoint.interval", "2ms");
        job.source("rows", csv_files::<Departure>(self.text(input)).on_bad_record(policy))
            .map_ref::<String>(|row| row.origin)
            .rebalance()
            .sink("files", sink::exactly_once_files(self.path("out")));
        job.run().map(drop)
    }

    /// What became visible.
    fn lines(&self) -> Vec<String> {
        if self.path("out").exists() { lines_in(&self.path("out")) } else { Vec::new() }
    }
}

const GOOD: &str = "date,delay,origin\n2001-01-01T00:01,5,LAS\n2001-01-01T00:02,-6,JFK\n";

#[test]
fn a_bad_row_is_named_by_file_line_and_field_and_nothing_of_a_line_is_visible_in_part() {
    for (what, row, field, says) in [
        ("a missing field", &b"2001-01-01T00:03,7\n"[..], Some("origin"), "2 columns"),
        ("a bad number", b"2001-01-01T00:03,x7,ORD\n", Some("delay"), "\"x7\""),
        (
            "a number that is too large",
            b"2001-01-01T00:03,3000000000,ORD\n",
            Some("delay"),
            "3000000000",
        ),
        ("a bad date", b"2001-02-30T00:03,7,ORD\n", Some("date"), "2001-02-30"),
        ("invalid UTF-8", b"2001-01-01T00:03,7,\xC3\x28RD\n", Some("origin"), "not UTF-8"),
        ("too many fields", b"2001-01-01T00:03,7,ORD,more\n", None, "4 columns"),
        ("an open quote", b"2001-01-01T00:03,7,\"ORD\n", None, "not closed"),
    ] {
        let place = Place::new(&[GOOD.as_bytes(), row, b"2001-01-01T00:04,1,SFO\n"].concat());
        let error = place.run("rows.csv", OnBadRecord::Fail).expect_err(what);
        assert_eq!((error.kind(), error.field()), (ErrorKind::Record, field), "{what}: {error}");
        assert_eq!(
            (error.path(), error.line()),
            (Some(&*place.path("rows.csv")), Some(4)),
            "{what}"
        );
        assert_eq!(error.operator(), Some("rows"), "{what}: {error}");
        assert!(error.to_string().contains(says), "{what}: {error}");
        for line in place.lines() {
            assert!(["JFK", "LAS"].contains(&&*line), "{what}: '{line}' is visible");
        }

        // An open quote goes on to the end of the file, so that the row behind it is lost with it.
        let rest: &[&str] =
            if what == "an open quote" { &["JFK", "LAS"] } else { &["JFK", "LAS", "SFO"] };
        let place = Place::new(&[GOOD.as_bytes(), row, b"2001-01-01T00:04,1,SFO\n"].concat());
        place.run("rows.csv", OnBadRecord::SkipAndCount).expect(what);
        assert_eq!(place.lines(), rest, "{what}, skipped");
    }
}

#[test]
fn a_line_of_100_mb_is_named_or_skipped() {
    let place = Place::new(GOOD.as_bytes());
    let file = fs::File::options().append(true).open(place.path("rows.csv")).expect("it is there");
    // A hole, read as zeros: 100 MB that need no room on the disk.
    file.set_len(100_000_000).expect("it grows");
    std::io::Write::write_all(&mut &file, b"\n2001-01-01T00:04,1,SFO\n")
        .expect("it can be written");
    let error = place.run("rows.csv", OnBadRecord::Fail).expect_err("the line is too long");
    assert_eq!((error.kind(), error.line()), (ErrorKind::Record, Some(4)), "{error}");
    assert_eq!(error.path(), Some(&*place.path("rows.csv")));
    assert!(place.lines().iter().all(|line| ["JFK", "LAS"].contains(&&**line)));
    fs::remove_dir_all(place.path("out")).expect("it is ours");
    place.run("rows.csv", OnBadRecord::SkipAndCount).expect("the line is skipped");
    assert_eq!(place.lines(), ["JFK", "LAS", "SFO"]);
}

#[test]
fn empty_files_a_last_line_without_a_break_and_crlf_are_no_mistakes() {
    for (content, origins) in [
        ("", &[][..]),
        ("date,delay,origin", &[]),
        ("date,delay,origin\r\n", &[]),
        (GOOD.trim_end(), &["JFK", "LAS"]),
        (&GOOD.replace('\n', "\r\n"), &["JFK", "LAS"]),
        (&format!("\u{feff}{GOOD}\n\n"), &["JFK", "LAS"]),
    ] {
        let place = Place::new(content.as_bytes());
        place.run("rows.csv", OnBadRecord::Fail).expect("nothing is wrong");
        assert_eq!(place.lines(), origins, "{content:?}");
    }
}

#[test]
fn a_header_without_a_column_is_named() {
    let place = Place::new(b"date,origin\n2001-01-01T00:01,LAS\n");
    let error = place.run("rows.csv", OnBadRecord::SkipAndCount).expect_err("no delay");
    let found = (error.kind(), error.line(), error.field());
    assert_eq!(found, (ErrorKind::Record, Some(1), Some("delay")), "{error}");
    assert_eq!(error.path(), Some(&*place.path("rows.csv")));
}

#[test]
fn an_input_that_can_not_be_read_is_named_before_anything_starts() {
    let place = Place::new(GOOD.as_bytes());
    for (input, kind) in
        [("missing.csv", ErrorKind::Config), ("*.none", ErrorKind::Config), ("", ErrorKind::Io)]
    {
        let error = place.run(input, OnBadRecord::Fail).expect_err(input);
        assert_eq!((error.kind(), error.path()), (kind, Some(&*place.path(input))), "{error}");
    }
    // Opens, and fails at the first read, whoever runs this test.
    let unreadable = Path::new("/proc/self/mem");
    if unreadable.exists() {
        let job = fragile("unreadable", 1);
        let (sink, lines) = sink::collect::<String>();
        job.source("lines", text_files("/proc/self/mem")).sink("out", sink);
        let error = job.run().expect_err("it can't be read");
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(unreadable)), "{error}");
        assert!(lines.take().is_empty());
    }
    assert!(!place.path("out").exists() || place.lines().is_empty());
}

#[cfg(unix)]
#[test]
fn an_input_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(GOOD.as_bytes());
    fs::set_permissions(place.path("rows.csv"), fs::Permissions::from_mode(0o000))
        .expect("it is ours");
    if fs::read(place.path("rows.csv")).is_ok() {
        // Whoever may read everything is refused nothing.
        return;
    }
    let error = place.run("rows.csv", OnBadRecord::Fail).expect_err("it may not be read");
    let found = (error.kind(), error.path());
    assert_eq!(found, (ErrorKind::Io, Some(&*place.path("rows.csv"))), "{error}");
}

#[test]
fn an_output_with_foreign_files_is_refused_and_left_as_it_is() {
    for foreign in ["notes.txt", "part", ".hidden"] {
        let place = Place::new(GOOD.as_bytes());
        fs::create_dir(place.path("out")).expect("it is new");
        fs::write(place.path("out").join(foreign), "mine").expect("it can be written");
        let error = place.run("rows.csv", OnBadRecord::Fail).expect_err(foreign);
        assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some(&*place.path("out"))));
        assert!(error.to_string().contains(&format!("'{foreign}'")), "{error}");
        let left: Vec<_> = fs::read_dir(place.path("out")).expect("it is there").collect();
        assert_eq!(left.len(), 1, "nothing was added");
        assert_eq!(fs::read(place.path("out").join(foreign)).expect("it is there"), b"mine");
    }
}

#[test]
fn two_jobs_do_not_share_a_checkpoint_directory() {
    let place = Place::new(b"");
    let start = |name: &str| {
        let numbers = Gated::new(100);
        let mut job = durable(name, 1, &place.path("checkpoints"));
        job.resume(true);
        let (sink, _out) = sink::collect::<u64>();
        job.source("numbers", numbers.clone()).sink("out", sink);
        numbers.open(10);
        (job.spawn(), numbers)
    };
    let (first, numbers) = start("first");
    let first = first.expect("it starts");
    wait_for(numbers.emitted(), 10);
    for name in ["first", "second"] {
        let (error, _) = start(name);
        let error = error.expect_err("somebody is there");
        assert_eq!(error.kind(), ErrorKind::Checkpoint, "{error}");
        assert!(
            error.path().is_some_and(|path| path.starts_with(place.path("checkpoints"))),
            "{error}"
        );
    }
    first.checkpoint().expect("the first one isn't disturbed");
    first.stop(SOON).expect("it stops");
    // The directory stays the first job's.
    let (error, _) = start("second");
    let error = error.expect_err("it is another job's");
    assert_eq!(error.kind(), ErrorKind::Checkpoint, "{error}");
    assert!(error.to_string().contains("first"), "{error}");
}

#[test]
fn options_out_of_range_or_unknown_are_named_before_anything_starts() {
    for (key, value) in [
        ("parallelism.default", "0"),
        ("taskmanager.slots", "0"),
        ("parallelism.default", "many"),
        ("checkpoint.intervall", "1s"),
        ("", "1"),
    ] {
        let error = Config::default().set(key, value, Origin::Code).expect_err("it is refused");
        assert!(error.to_string().contains(key), "{error}");
        assert_eq!(Error::from(error).kind(), ErrorKind::Config);
    }
    for (key, value) in [("parallelism.default", "10000"), ("checkpoint.interval", "0")] {
        let place = Place::new(GOOD.as_bytes());
        let mut job = job("options", 1);
        set(&mut job, key, value);
        job.source("rows", csv_files::<Departure>(place.text("rows.csv")))
            .map_ref::<String>(|row| row.origin)
            .sink("files", sink::exactly_once_files(place.path("out")));
        let error = job.run().expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(key), "{error}");
        assert!(!place.path("out").exists(), "nothing was begun");
    }
}
