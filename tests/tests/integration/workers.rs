//! Workers as the operating system sees them: pinned where there are CPUs enough, and asleep while nothing is to do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::{Job, sink, source, topology};

use crate::rig::{job, set};

/// The CPUs that each thread of an operator may run on, by the thread.
type Seen = Arc<Mutex<BTreeMap<String, Vec<usize>>>>;

/// Runs a chain that notes where it runs, in as many subtasks as the job has workers.
fn seen_by(job: Job) -> BTreeMap<String, Vec<usize>> {
    let seen = Seen::default();
    let notes = seen.clone();
    let (count, counts) = sink::fold::<u64, _, _>(0u64, |count, _| *count += 1);
    job.source("numbers", source::range(0..1000))
        .inspect(move |_| {
            let thread = std::thread::current();
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.entry(thread.name().unwrap_or("?").to_owned()).or_insert_with(allowed_now);
        })
        .sink("count", count);
    job.run().expect("it runs");
    assert_eq!(counts.take().iter().sum::<u64>(), 1000);
    Arc::try_unwrap(seen).map_or_else(
        |_| panic!("the job is over"),
        |seen| seen.into_inner().unwrap_or_else(PoisonError::into_inner),
    )
}

/// The CPUs that the calling thread may run on.
fn allowed_now() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).expect("Linux tells it");
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn each_worker_of_a_running_job_sees_one_cpu_of_its_own() {
    let allowed = topology::allowed_cpus();
    let workers = allowed.len().min(4);
    let seen = seen_by(job("pinned", workers as u32));
    assert_eq!(seen.len(), workers, "each worker has a subtask: {seen:?}");
    let mut cpus: Vec<usize> = seen.values().flatten().copied().collect();
    cpus.sort_unstable();
    assert_eq!(cpus, allowed[..workers], "one each: {seen:?}");
    assert_eq!(allowed_now().len(), allowed.len(), "the host's threads are left as they are");
}

#[cfg(target_os = "linux")]
#[test]
fn workers_that_outnumber_the_cpus_are_not_pinned() {
    let allowed = topology::allowed_cpus();
    let seen = seen_by(job("crowded", allowed.len() as u32 + 1));
    assert_eq!(seen.len(), allowed.len() + 1);
    assert!(seen.values().all(|cpus| cpus == allowed), "{seen:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn workers_run_on_the_cpus_they_are_told_and_a_cpu_that_is_none_is_no_error() {
    let allowed = topology::allowed_cpus();
    let last = *allowed.last().expect("there is one");
    let mut told = job("told", 1);
    set(&mut told, "taskmanager.cores", &last.to_string());
    assert_eq!(seen_by(told).into_values().collect::<Vec<_>>(), [[last]]);
    let mut absent = job("absent", 1);
    set(&mut absent, "taskmanager.cores", &(last + 1).to_string());
    assert_eq!(seen_by(absent).into_values().collect::<Vec<_>>(), [allowed]);
}

#[test]
fn a_job_comes_to_the_same_with_every_idle_strategy() {
    for strategy in ["spin", "backoff", "park"] {
        let mut job = job("idle", 2);
        set(&mut job, "idle-strategy", strategy);
        let (sink, counts) = sink::collect::<(u64, u64)>();
        job.source("numbers", source::range(0..5000))
            .key_by(|n| n % 7)
            .count("n")
            .sink("out", sink);
        job.run().expect("it runs");
        assert_eq!(counts.take().len(), 5000, "{strategy}");
    }
}
