//! What the machine is like: the CPUs we may use, pages, caches, memory; and how a thread is placed on it.
//!
//! Nothing here fails: where the system doesn't tell or doesn't let us, a thread runs unpinned and a size is a usual
//! one. The CPUs are read once, before any thread is pinned, because a pinned thread sees its own CPU only. Called by
//! `runtime` when workers start, and by `state` for the size of L2.

use std::sync::OnceLock;

/// The CPUs that this process may run on, ascending; at least one. Containers and `taskset` narrow them.
///
/// They are read by the first call in the process. [`pin`] makes that call if nobody else did.
pub fn allowed_cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        let ids = core_affinity::get_core_ids().unwrap_or_default();
        let mut cpus: Vec<usize> = ids.into_iter().map(|core| core.id).collect();
        if cpus.is_empty() {
            cpus.extend(0..std::thread::available_parallelism().map_or(1, Into::into));
        }
        cpus.sort_unstable();
        cpus
    })
}

/// Pins the calling thread to a CPU. Whether that worked: not for a CPU that isn't allowed, nor where the system can't.
pub fn pin(cpu: usize) -> bool {
    allowed_cpus().contains(&cpu)
        && core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}

/// Lets the calling thread's timers fire at most about 1 µs late instead of 50. Whether that worked; only Linux can.
pub fn sharpen_timers() -> bool {
    #[cfg(target_os = "linux")]
    {
        let slack = std::num::NonZeroU64::new(1000);
        rustix::thread::set_current_timer_slack(slack).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Bytes of a memory page.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Bytes of the first CPU's level-2 cache; 1 MiB if the system doesn't tell.
pub fn l2_bytes() -> usize {
    const USUAL: usize = 1 << 20;
    let entry = |index: usize, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        std::fs::read_to_string(path).ok()
    };
    let level_2 = (0..8).find(|&index| entry(index, "level").is_some_and(|s| s.trim() == "2"));
    level_2.and_then(|index| cache_bytes(&entry(index, "size")?)).unwrap_or(USUAL)
}

/// A cache's size as the kernel writes it: `2048K`.
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// The most memory, in bytes, that this process has had resident so far; `None` where the system doesn't tell.
pub fn peak_resident_bytes() -> Option<u64> {
    peak_in_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The high-water mark in the kernel's status file, which counts in units of 1024 bytes.
fn peak_in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_cpus_are_distinct_and_stay_those_of_the_start() {
        let cpus = allowed_cpus();
        assert!(cpus.is_sorted_by(|a, b| a < b) && !cpus.is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| pin(cpus[0]));
        });
        assert_eq!(allowed_cpus(), cpus);
    }

    #[test]
    fn a_cpu_that_is_not_allowed_is_not_pinned_to_and_is_no_error() {
        let absent = allowed_cpus().last().expect("there is one") + 1;
        assert!(!pin(absent));
        assert!(!pin(usize::MAX));
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[cfg_attr(miri, ignore = "miri has no affinity")]
    fn a_pinned_thread_runs_on_its_cpu_only() {
        let cpu = *allowed_cpus().last().expect("there is one");
        let seen = std::thread::scope(|scope| {
            let pinned = scope.spawn(|| pin(cpu).then(core_affinity::get_core_ids).flatten());
            pinned.join().expect("pinning doesn't panic")
        });
        if let Some(seen) = seen {
            assert_eq!(seen.into_iter().map(|core| core.id).collect::<Vec<_>>(), [cpu]);
        }
    }

    #[test]
    fn sizes_are_plausible() {
        assert!(page_bytes().is_power_of_two() && page_bytes() >= 4096);
        assert!(l2_bytes() >= 64 << 10);
        assert_eq!(cache_bytes("2048K\n"), Some(2 << 20));
        assert_eq!((cache_bytes("1M"), cache_bytes("512")), (Some(1 << 20), Some(512)));
        assert_eq!((cache_bytes(""), cache_bytes("K"), cache_bytes("0K")), (None, None, None));
    }

    #[test]
    fn the_peak_is_read_from_the_status_file() {
        assert_eq!(
            peak_in_status("Name:\tx\nVmHWM:\t    1024 kB\nVmRSS:\t 12 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(peak_in_status("VmRSS:\t 12 kB\n"), None);
        #[cfg(target_os = "linux")]
        assert!(peak_resident_bytes().is_none_or(|bytes| bytes > 100 << 10));
    }
}
