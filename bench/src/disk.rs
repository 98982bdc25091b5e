//! What the disk alone takes: the share of a checkpoint that no engine can save.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::failure::Failure;
use crate::quantile::Quantiles;

/// How long it takes, `count` times, to write `bytes` to a new file in `folder` and to sync it.
///
/// # Errors
/// The folder can't be written to.
pub fn sync_times(folder: &Path, bytes: u64, count: usize) -> Result<Quantiles, Failure> {
    let path = folder.join("sync");
    let failed = |error| Failure::Other(format!("{}: {error}", path.display()));
    let block = vec![0x5A; usize::try_from(bytes).unwrap_or(0)];
    let times = (0..count)
        .map(|_| {
            let mut file = File::create(&path)?;
            file.write_all(&block)?;
            let begun = Instant::now();
            file.sync_all()?;
            Ok(begun.elapsed())
        })
        .collect::<std::io::Result<Quantiles>>()
        .map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_timed_and_leave_nothing() {
        let folder = tempfile::tempdir().expect("makes a folder");
        assert_eq!(sync_times(folder.path(), 4096, 3).expect("it is ours").count(), 3);
        assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 0);
        assert!(sync_times(&folder.path().join("none"), 1, 1).is_err());
    }
}
