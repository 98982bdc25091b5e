//! Files as they come, good and bad, read as text.

use std::fs;
use std::path::Path;

use super::super::text::{Text, text_files};
use super::*;
use crate::testing::source::{Drive, conformance};

/// A folder with files in it.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("makes a folder");
    for (name, content) in files {
        fs::write(dir.path().join(name), content).expect("writes");
    }
    dir
}

fn text(dir: &Path, pattern: &str) -> Files<Text> {
    text_files(dir.join(pattern).to_str().expect("is text"))
}

fn read(source: &Files<Text>) -> Result<Vec<String>> {
    Drive::new(source, 1)?.try_read(usize::MAX, 256)
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn many_files_conform_empty_ones_and_those_without_a_last_break_among_them() {
    let dir = folder(&[
        ("b.txt", b"b1\r\nb2\r\n"),
        ("a.txt", b"a1\n\na3"),
        ("empty.txt", b""),
        (".hidden.txt", b"no"),
        ("bom.txt", "\u{feff}first\nsecond\n".as_bytes()),
        ("other.csv", b"no"),
    ]);
    let expected = lines(&["a1", "", "a3", "b1", "b2", "first", "second"]);
    conformance(|| text(dir.path(), "*.txt"), &expected);
    assert_eq!(read(&text(dir.path(), "*.txt")).expect("reads"), expected, "sorted by name");
}

#[test]
fn a_large_file_is_cut_into_ranges_of_at_least_a_mebibyte_and_conforms() {
    let expected: Vec<_> = (0..50).map(|i| format!("{i} ") + &"é".repeat(33_000)).collect();
    let dir = folder(&[("large.txt", expected.join("\n").as_bytes())]);
    let source = text(dir.path(), "large.txt");
    assert_eq!(source.splits(1).expect("cuts").len(), 4);
    assert_eq!(source.splits(100).expect("cuts").len(), 4, "3.3 MB");
    assert_eq!(source.splits(2).expect("cuts"), source.splits(2).expect("cuts"), "always the same");
    conformance(|| source.clone(), &expected);
}

#[test]
fn what_can_not_be_opened_is_an_error_with_its_path() {
    let dir = folder(&[("file", b"x")]);
    let error = |pattern: &str| text(dir.path(), pattern).splits(1).expect_err("is refused");
    for pattern in ["missing", "*.none", "none/*"] {
        let error = error(pattern);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.path().is_some_and(|path| path.ends_with(pattern)), "{error}");
    }
    assert_eq!(error("[").kind(), ErrorKind::Config);
    assert!(error("").to_string().contains("folder"));
    let device = text_files("/dev/null").splits(1).expect_err("is refused");
    assert!(device.to_string().contains("no regular file"), "{device}");
    assert_eq!(
        text(dir.path(), "file").max_line_bytes(0).splits(1).expect_err("is refused").kind(),
        ErrorKind::Config
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_can_not_be_read_is_an_error_with_its_path() {
    // Opens, and fails at the first read, for everybody.
    let error = text_files("/proc/self/mem").splits(1).expect_err("is refused");
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(Path::new("/proc/self/mem"))));
}

#[test]
fn a_name_with_brackets_is_meant_as_it_is() {
    let dir = folder(&[("a[1].txt", b"x")]);
    assert_eq!(read(&text(dir.path(), "a[1].txt")).expect("reads"), ["x"]);
}

#[test]
fn p22_a_line_that_is_not_utf8_is_an_error_with_its_line_or_skipped_or_replaced() {
    let dir = folder(&[("a.txt", b"ok\n\nbad \xE2\x82 end\nok\n")]);
    let source = text(dir.path(), "a.txt");
    let error = read(&source).expect_err("is refused");
    assert_eq!((error.kind(), error.line()), (ErrorKind::Record, Some(3)));
    assert!(error.path().is_some_and(|path| path.ends_with("a.txt")), "{error}");

    let skipping = source.clone().on_bad_record(OnBadRecord::SkipAndCount);
    let skipped = skipping.skipped();
    assert_eq!(read(&skipping).expect("reads"), ["ok", "", "ok"]);
    assert_eq!(skipped.count(), 1);

    let replacing = source.on_invalid_text(OnInvalidText::Replace);
    assert_eq!(read(&replacing).expect("reads"), ["ok", "", "bad \u{fffd} end", "ok"]);
}

#[test]
fn p09_a_line_of_100_mb_is_an_error_or_skipped_and_never_spins() {
    let dir = folder(&[("a.txt", b"before\n")]);
    let file = File::options().append(true).open(dir.path().join("a.txt")).expect("opens");
    file.set_len(100_000_000).expect("grows");
    std::io::Write::write_all(&mut &file, b"\nafter\n").expect("writes");
    let source = text(dir.path(), "a.txt");
    let mut drive = Drive::new(&source, 1).expect("opens");
    let error = drive.try_read(9, 9).expect_err("is refused");
    assert_eq!((error.kind(), error.line()), (ErrorKind::Record, Some(2)));
    assert!(error.to_string().contains("67108864"), "{error}");
    let source = source.on_bad_record(OnBadRecord::SkipAndCount);
    assert_eq!(read(&source).expect("reads"), ["before", "after"]);
    assert_eq!(source.skipped().count(), 1);
}

#[test]
fn an_error_in_a_range_in_the_middle_of_a_file_counts_lines_from_its_beginning() {
    let mut content = "0123456\n".repeat(400_000).into_bytes();
    let at = 8 * 300_000;
    content[at] = 0xFF;
    let dir = folder(&[("a.txt", &content)]);
    let error = read(&text(dir.path(), "a.txt")).expect_err("is refused");
    assert_eq!(error.line(), Some(300_001));
}

#[test]
fn a_file_that_changed_since_the_job_started_is_refused() {
    let dir = folder(&[("a.txt", b"one\ntwo\n")]);
    let source = text(dir.path(), "a.txt");
    let splits = source.splits(1).expect("cuts");
    fs::write(dir.path().join("a.txt"), b"zero\none\ntwo\n").expect("writes");
    let mut drive = Drive::restored(&source, 1, splits).expect("opens");
    let error = drive.try_read(9, 9).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.to_string().contains("had 8 bytes and has 13"), "{error}");
    fs::remove_file(dir.path().join("a.txt")).expect("removes");
    assert_eq!(drive.try_read(9, 9).expect_err("is refused").kind(), ErrorKind::Io);
}

/// Writes what `write` makes of 30 lines, and checks it whole, cut short and with a changed byte.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn check_compressed(write: impl Fn(&[u8]) -> Vec<u8>) {
    let expected: Vec<_> = (0..30).map(|i| format!("line {i} ") + &"€".repeat(i * 40)).collect();
    let (front, back) = expected.split_at(13);
    let front = write((front.join("\n") + "\n").as_bytes());
    let back = write(back.join("\n").as_bytes());
    let mut whole = [front, write(b""), back].concat();
    // The name says nothing.
    let dir = folder(&[("a.txt", &whole)]);
    let source = text(dir.path(), "a.txt");
    assert_eq!(source.splits(4).expect("cuts").len(), 1, "never split");
    conformance(|| source.clone(), &expected);

    fs::write(dir.path().join("a.txt"), &whole[..whole.len() - 2]).expect("writes");
    assert_eq!(read(&source).expect_err("is refused").kind(), ErrorKind::Io, "truncated");
    let at = whole.len() - 1;
    whole[at] ^= 1;
    fs::write(dir.path().join("a.txt"), &whole).expect("writes");
    assert_eq!(
        read(&source).expect_err("is refused").kind(),
        ErrorKind::Io,
        "its checksum is wrong"
    );
}

#[cfg(feature = "gzip")]
#[test]
fn gzip_files_of_many_members_conform_and_damage_is_seen() {
    check_compressed(|bytes| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).expect("compresses");
        encoder.finish().expect("compresses")
    });
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_files_of_many_frames_conform_and_damage_is_seen() {
    check_compressed(|bytes| {
        let skipped = [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0], &b"abc"[..]].concat();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        [skipped, ruzstd::encoding::compress_to_vec(bytes, level)].concat()
    });
}

#[cfg(not(feature = "gzip"))]
#[test]
fn a_compressed_file_names_the_feature_that_reads_it() {
    let dir = folder(&[("a.txt", &[0x1F, 0x8B, 8, 0])]);
    let error = text(dir.path(), "a.txt").splits(1).expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("'gzip'"), "{error}");
}
