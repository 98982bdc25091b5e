//! What people have reported of other engines, in whole jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate::clock::Timestamp;
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{JobHandle, Output, Result, sink, topology};

use crate::rig::{
    Failures, Numbered, Oracle, Streams, Valve, cancel, check_all, check_restarts, checkpoint,
    durable, ended, in_order, in_own_process, job, kept, run, wait_full, wait_until,
};

#[test]
fn p05_copies_of_a_broadcast_stay_equal_over_unaligned_checkpoints_and_restores() {
    for any_edge in ["false", "true"] {
        let what = format!("any edge: {any_edge}");
        let options = [("checkpoint.interval", "2ms"), ("checkpoint.unaligned.any-edge", any_edge)];
        let job = job("copies", 3, &options);
        let streams = Streams::even(6, 300);
        let failures = Failures::at(&[1_000, 2_600, 4_500]);
        let (sink, collected) = kept();
        job.source("control", streams.clone())
            .broadcast()
            .inspect(move |_| failures.pass())
            .sink("copies", sink::paced(sink, 40_000));
        let status = run(job, &what);
        check_restarts(&status, 3, &what);
        // Of each subtask in order, subtask by subtask.
        let records = collected.take();
        assert_eq!(records.len(), 3 * 6 * 300, "{what}");
        for copy in records.chunks(6 * 300) {
            for stream in 0..6 {
                let of_stream: Vec<Numbered> =
                    copy.iter().copied().filter(|(of, _, _)| *of == stream).collect();
                let expected: Vec<_> =
                    streams.all().into_iter().filter(|(of, _, _)| *of == stream).collect();
                assert!(of_stream == expected, "{what}: a copy of stream {stream} differs");
            }
        }
    }
}

/// Strings much larger than a buffer, as many as are asked for.
#[derive(Clone, Debug)]
struct Large;

const LARGE: [(char, usize); 3] = [('a', 20 << 20), ('b', 100), ('c', 7 << 20)];

impl Source for Large {
    type Out = String;
    type Reader = LargeReader;

    fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
        Ok(vec![Split(vec![0])])
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<LargeReader> {
        Ok(LargeReader { next: splits.first().map(|split| split.0[0] as usize) })
    }
}

#[derive(Debug)]
struct LargeReader {
    next: Option<usize>,
}

impl Reader for LargeReader {
    type Out = String;

    fn poll(&mut self, _: usize, _: Timestamp, out: &mut Output<'_, String>) -> Result<Poll> {
        let Some((letter, bytes)) = self.next.and_then(|next| LARGE.get(next)) else {
            return Ok(Poll::End);
        };
        out.emit(large(*letter, *bytes));
        self.next = self.next.map(|next| next + 1);
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.next.map(|next| Split(vec![next as u8])).into_iter().collect()
    }
}

fn large(letter: char, bytes: usize) -> String {
    std::iter::repeat_n(letter, bytes - 2).chain("yz".chars()).collect()
}

#[test]
fn p06_a_record_larger_than_any_buffer_survives_an_unaligned_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let valve = Valve::closed();
    let (sink, collected) = sink::collect::<String>();
    for round in 0..2 {
        let mut job = durable("large", 1, dir.path(), &[]);
        job.resume(round > 0);
        job.source("large", Large)
            .key_by(|text| text.len() as u64)
            .process_each(
                "passed on",
                |_| Ok(()),
                |(), text, _, out| {
                    out.emit(text);
                    Ok(())
                },
            )
            .sink("kept", valve.before(sink.clone()));
        let handle = job.spawn().expect("it starts");
        if round == 0 {
            let bytes_in_flight = |handle: &JobHandle| {
                let id = checkpoint(handle, "it overtakes what is in flight");
                let spill = dir.path().join(format!("chk-{}/spill-0", id.0));
                fs::metadata(spill).map_or(0, |metadata| metadata.len())
            };
            wait_until("the large ones", &handle, || bytes_in_flight(&handle) > 20 << 20);
            cancel(handle);
            valve.open();
        } else {
            ended(handle, "large");
        }
    }
    let mut found = collected.take();
    found.sort_unstable();
    assert_eq!(found.len(), LARGE.len());
    for (text, (letter, bytes)) in found.iter().zip(LARGE) {
        assert!(*text == large(letter, bytes), "{} bytes of {letter}", text.len());
    }
}

#[test]
fn p08_a_job_without_buffers_is_refused_by_name() {
    for count in ["0", "1"] {
        let job = job("no buffers", 1, &[("buffer.per-channel", count)]);
        job.source("numbers", Streams::even(1, 1)).sink("none", sink::discard());
        let error = job.build().expect_err("a channel needs two");
        assert!(error.to_string().contains("buffer.per-channel"), "{error}");
    }
    let job = job("two buffers", 2, &[("buffer.per-channel", "2")]);
    let oracle = Oracle::default();
    in_order(job.source("numbers", Streams::even(4, 5_000)), "keyed", &oracle)
        .sink("none", sink::discard());
    run(job, "two buffers");
    oracle.check("two buffers");
}

/// A file system of 10 MiB, if this machine lets us mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=10m", "tmpfs"]).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        is_mounted.then(|| Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// Takes all that is left of a disk.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).expect("there is room for a name");
    for bytes in [1 << 16, 1 << 10, 1] {
        while file.write_all(&vec![0; bytes]).is_ok() {}
    }
}

#[test]
fn p13_a_job_on_a_full_disk_declines_its_checkpoints_and_goes_on() {
    let Some(disk) = SmallDisk::mount() else {
        println!("SKIPPED: no file system may be mounted here");
        return;
    };
    let job = durable("full disk", 2, &disk.0.path().join("checkpoints"), &[]);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(12, 500);
    let (sink, collected) = kept();
    let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
    in_order(first, "second", &oracle).sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_full(&streams, &handle);
    checkpoint(&handle, "there is room for what is in flight");
    let ballast = disk.0.path().join("ballast");
    fill(&ballast);
    for failed in 1..=2 {
        let error = handle.checkpoint().expect_err("there is no room");
        let why = handle.status().last_checkpoint_failure.expect("it is told");
        for text in [error.to_string(), why] {
            assert!(text.contains("No space left"), "{text}");
            assert!(text.contains(disk.0.path().to_str().expect("it is text")), "{text}");
        }
        assert_eq!((handle.status().checkpoints_failed, handle.status().restarts), (failed, 0));
    }
    fs::remove_file(&ballast).expect("it is there");
    checkpoint(&handle, "there is room again");
    valve.open();
    let status = ended(handle, "full disk");
    assert_eq!(status.restarts, 0, "{:?}", status.last_failure);
    oracle.check("full disk");
    check_all(collected.take(), &streams.all(), "full disk");
}

#[test]
fn p13_what_is_in_flight_goes_through_a_mapping_where_the_file_system_preallocates() {
    let dir = tempfile::tempdir().expect("a folder");
    let probe = fs::File::create(dir.path().join("probe")).expect("a file");
    let flags = rustix::fs::FallocateFlags::empty();
    if rustix::fs::fallocate(&probe, flags, 0, 32 << 20).is_err() {
        println!("SKIPPED: this file system can't preallocate");
        return;
    }
    drop(probe);
    let job = durable("mapped", 1, &dir.path().join("checkpoints"), &[]);
    let valve = Valve::closed();
    let streams = Streams::even(4, 1_000);
    let (sink, _collected) = kept();
    in_order(job.source("numbers", streams.clone()), "only", &Oracle::default())
        .sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_full(&streams, &handle);
    checkpoint(&handle, "it overtakes what is in flight");
    assert!(handle.status().spilled_mapped_bytes > 0, "{:?}", handle.status());
    cancel(handle);
}

const CROWDED: &str = "TIDEGATE_TEST_CROWDED";

#[test]
#[ignore = "p19 runs it in a process that may use one CPU"]
fn child_of_p19() {
    if std::env::var_os(CROWDED).is_none() {
        return;
    }
    assert_eq!(topology::allowed_cpus().len(), 1, "the process may use one CPU");
    for strategy in ["spin", "backoff", "park"] {
        let options = [
            ("taskmanager.slots", "4"),
            ("checkpoint.interval", "5ms"),
            ("idle-strategy", strategy),
        ];
        let job = job("crowded", 4, &options);
        let oracle = Oracle::default();
        let (sink, collected) = kept();
        let streams = Streams::even(16, 2_000);
        let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
        in_order(first, "second", &oracle).rebalance().sink("kept", sink);
        run(job, strategy);
        oracle.check(strategy);
        check_all(collected.take(), &streams.all(), strategy);
    }
}

#[test]
fn p19_four_workers_on_one_cpu_come_to_their_end() {
    // Workers that spin for each other on one CPU made no headway.
    let child = std::thread::spawn(|| {
        let cpu = *topology::allowed_cpus().last().expect("there is one");
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        // What is started from here inherits it.
        rustix::thread::sched_setaffinity(None, &one).expect("it is allowed");
        in_own_process("reports::child_of_p19", CROWDED, &PathBuf::from("1")).spawn()
    });
    let mut child = child.join().expect("no panic").expect("it starts");
    let begin = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if begin.elapsed() > crate::rig::SOON {
            child.kill().expect("it runs");
            panic!("four workers on one CPU did not come to their end");
        }
        std::thread::yield_now();
    };
    assert!(status.success(), "{status}");
}
