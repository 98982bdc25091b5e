//! The inputs that are kept.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{TARGETS, Target};

/// Where the corpora are.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz").join("corpus")
}

/// The inputs of `target`, by name.
///
/// # Errors
/// The folder can't be read.
pub fn read(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder().join(target.name))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        inputs.push((name, fs::read(&path)?));
    }
    inputs.sort();
    Ok(inputs)
}

/// Writes the seeds of all targets; what else is there stays. Returns how many.
///
/// # Errors
/// A file can't be written.
pub fn write_seeds() -> io::Result<usize> {
    let mut written = 0;
    for target in TARGETS {
        let folder = folder().join(target.name);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in (target.seeds)() {
            fs::write(folder.join(format!("seed-{name}")), bytes)?;
            written += 1;
        }
    }
    Ok(written)
}
