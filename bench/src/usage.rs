//! What this process has used: CPU time and memory.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads together.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Neither is negative on this clock.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The most memory that was resident at a time, in bytes; 0 where the system doesn't tell.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        assert!(cpu() > Duration::ZERO);
        if cfg!(target_os = "linux") {
            assert!(peak_rss_bytes() > 100 << 10);
        }
    }
}
