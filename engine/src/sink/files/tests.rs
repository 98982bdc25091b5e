//! The files of a sink over its life, as other programs see them.

use std::fs;
use std::path::Path;

use super::*;
use crate::id::Attempt;
use crate::testing::sink::conformance;

fn context(attempt: u32, restored: Option<u64>) -> WriterContext<'static> {
    WriterContext {
        name: "files",
        subtask: 0,
        parallelism: 1,
        attempt: Attempt(attempt),
        restored: restored.map(CheckpointId),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("lists");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("lists").file_name().into_string().expect("is text")).collect();
    names.sort();
    names
}

fn visible(dir: &Path) -> Vec<String> {
    let committed = names(dir).into_iter().filter(|name| name.starts_with("part-"));
    let text: String =
        committed.map(|name| fs::read_to_string(dir.join(name)).expect("reads")).collect();
    text.lines().map(str::to_owned).collect()
}

type Lines = FilesWriter<Displayed>;

fn open(sink: &ExactlyOnceFiles<Displayed>, context: WriterContext<'_>) -> Lines {
    Sink::<String>::open(sink, Vec::new(), context).expect("opens")
}

fn write(writer: &mut Lines, line: &str) {
    Writer::<String>::write(writer, line).expect("writes");
}

fn prepare(writer: &mut Lines, checkpoint: u64) -> Vec<Committable> {
    Writer::<String>::prepare(writer, CheckpointId(checkpoint)).expect("prepares")
}

fn commit(writer: &mut Lines, checkpoint: u64) {
    Writer::<String>::commit(writer, CheckpointId(checkpoint)).expect("commits");
}

#[test]
fn files_conform_also_when_they_roll() {
    let records: Vec<String> = (0..40).map(|i| format!("line {i} ß")).collect();
    for roll_bytes in [u64::MAX, 1] {
        conformance(
            || {
                let dir = tempfile::tempdir().expect("makes a folder");
                let sink = exactly_once_files(dir.path()).roll_bytes(roll_bytes);
                (sink, move || visible(dir.path()))
            },
            &records,
        );
    }
}

#[test]
fn a_closure_formats_the_lines_and_the_extension_is_as_told() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path().join("made/on/the/way"))
        .format::<(u64, String), _>(|(n, name), line| write!(line, "{n};{name}"))
        .extension("csv");
    Sink::check(&sink).expect("is fine");
    let mut writer = sink.open(Vec::new(), context(0, None)).expect("opens");
    writer.write((7, "x")).expect("writes");
    writer.finish(false).expect("finishes");
    assert_eq!(
        fs::read_to_string(dir.path().join("made/on/the/way/part-0-0.csv")).expect("reads"),
        "7;x\n"
    );
}

#[test]
fn parts_are_hidden_until_the_commit_and_numbered_above_what_is_there() {
    let dir = tempfile::tempdir().expect("makes a folder");
    fs::write(dir.path().join("part-0-6.old"), "from another job\n").expect("writes");
    let sink = exactly_once_files(dir.path());
    let mut writer = open(&sink, context(2, None));
    write(&mut writer, "a");
    assert_eq!(prepare(&mut writer, 1).len(), 1);
    assert_eq!(names(dir.path()), [".part-0-7.2", "part-0-6.old"]);
    commit(&mut writer, 1);
    assert_eq!(names(dir.path()), ["part-0-6.old", "part-0-7.1.txt"]);
    assert!(prepare(&mut writer, 2).is_empty(), "nothing written, no file");
}

#[test]
fn a_folder_with_foreign_files_is_refused_and_nothing_in_it_touched() {
    let dir = tempfile::tempdir().expect("makes a folder");
    fs::write(dir.path().join("notes.txt"), "mine").expect("writes");
    let error = Sink::<String>::check(&exactly_once_files(dir.path())).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(names(dir.path()), ["notes.txt"]);
    let file = dir.path().join("notes.txt");
    let error = Sink::<String>::check(&exactly_once_files(&file)).expect_err("is refused");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(file.as_path())));
    for extension in ["", "a/b", "7.txt"] {
        let sink = exactly_once_files(dir.path().join("new")).extension(extension);
        assert_eq!(Sink::<String>::check(&sink).expect_err("is refused").kind(), ErrorKind::Config);
    }
}

#[test]
fn uncommitted_parts_of_earlier_attempts_and_lost_subtasks_are_removed_but_nothing_else() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let stale = [".part-0-1.0", ".part-0-2.9", ".part-5-0.0"];
    let kept = [".part-0-x.1", ".part-1", "part-0-0.txt"];
    for name in stale.iter().chain(&kept) {
        fs::write(dir.path().join(name), "x\n").expect("writes");
    }
    let sink = exactly_once_files(dir.path());
    let mut writer = open(&sink, context(0, Some(4)));
    assert_eq!(names(dir.path()).len(), 6, "another subtask may be about to commit them");
    write(&mut writer, "a");
    prepare(&mut writer, 5);
    commit(&mut writer, 5);
    assert_eq!(names(dir.path()), [".part-0-x.1", ".part-1", "part-0-0.txt", "part-0-3.5.txt"]);

    fs::write(dir.path().join(".part-0-9.0"), "x\n").expect("writes");
    open(&sink, context(1, None));
    assert!(!dir.path().join(".part-0-9.0").exists(), "without a checkpoint nobody needs it");
}

#[test]
fn p02_the_last_pending_batch_of_a_bounded_job_is_committed_with_and_without_checkpoints() {
    for checkpointed in [true, false] {
        let dir = tempfile::tempdir().expect("makes a folder");
        let sink = exactly_once_files(dir.path()).roll_bytes(6);
        let mut writer = open(&sink, context(0, None));
        for i in 0..7 {
            write(&mut writer, &format!("r{i}"));
        }
        Writer::<String>::finish(&mut writer, checkpointed).expect("finishes");
        if checkpointed {
            assert!(visible(dir.path()).is_empty());
            prepare(&mut writer, 1);
            commit(&mut writer, 1);
        }
        assert_eq!(visible(dir.path()).len(), 7, "checkpointed: {checkpointed}");
    }
}

#[test]
fn p12_a_crash_between_complete_and_committed_is_made_good_on_restore() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path());
    let mut writer = open(&sink, context(0, None));
    write(&mut writer, "before");
    let declined = prepare(&mut writer, 1);
    write(&mut writer, "after");
    let prepared = prepare(&mut writer, 2);
    assert_eq!((declined.len(), prepared.len()), (1, 2), "a later checkpoint carries all");
    write(&mut writer, "lost with the process");
    drop(writer);
    for _ in 0..2 {
        // A new process: another sink, and attempts begin again.
        let sink = exactly_once_files(dir.path());
        let _ = Sink::<String>::open(&sink, prepared.clone(), context(0, Some(2))).expect("opens");
        assert_eq!(visible(dir.path()), ["before", "after"]);
    }
}

#[test]
fn a_committable_can_not_name_a_file_outside() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path());
    let mut writer = open(&sink, context(0, None));
    write(&mut writer, "a");
    let mut bytes = prepare(&mut writer, 1).remove(0).0;
    let at = bytes.len() - 3;
    bytes[at..].copy_from_slice(b"/..");
    let opened = Sink::<String>::open(&sink, vec![Committable(bytes)], context(1, Some(1)));
    assert_eq!(opened.expect_err("is refused").kind(), ErrorKind::Checkpoint);
}

#[test]
fn a_record_that_can_not_be_formatted_leaves_no_half_line() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path()).format::<u64, _>(|n, line| {
        write!(line, "{n}")?;
        if n == 1 { Err(io::Error::other("no ones")) } else { Ok(()) }
    });
    let mut writer = sink.open(Vec::new(), context(0, None)).expect("opens");
    writer.write(0).expect("writes");
    assert_eq!(writer.write(1).expect_err("is refused").kind(), ErrorKind::Record);
    writer.write(2).expect("writes");
    writer.finish(false).expect("finishes");
    assert_eq!(visible(dir.path()), ["0", "2"]);
}

#[test]
fn a_checkpoint_that_could_not_be_prepared_costs_no_line() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path());
    let mut writer = open(&sink, context(0, None));
    write(&mut writer, "a");
    let obstacle = dir.path().join(".part-0-0.0");
    fs::write(&obstacle, "").expect("writes");
    let declined = Writer::<String>::prepare(&mut writer, CheckpointId(1));
    assert_eq!(declined.expect_err("is refused").path(), Some(obstacle.as_path()));
    fs::remove_file(&obstacle).expect("removes");
    write(&mut writer, "b");
    assert_eq!(prepare(&mut writer, 2).len(), 1);
    commit(&mut writer, 2);
    assert_eq!(visible(dir.path()), ["a", "b"]);
}

#[test]
fn going_back_moves_the_parts_of_later_checkpoints_and_nothing_else_however_often() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let sink = exactly_once_files(dir.path());
    for round in 0..2 {
        let mut writer = open(&sink, context(round, Some(1)));
        for checkpoint in 1..=3 {
            write(&mut writer, &format!("{round} {checkpoint}"));
            prepare(&mut writer, checkpoint);
            commit(&mut writer, checkpoint);
        }
        for _ in 0..2 {
            Sink::<String>::retract(&sink, CheckpointId(1)).expect("takes back");
        }
    }
    assert_eq!(visible(dir.path()), ["0 1", "1 1"]);
    assert_eq!(names(&dir.path().join(".superseded")).len(), 4);
    Sink::<String>::check(&sink).expect("the folder can be used again");
}
