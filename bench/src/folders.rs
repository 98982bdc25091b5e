//! Where a run's files go if nobody says: a folder of its own under `out/`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::args::Args;
use crate::failure::Failure;

/// A run's folders.
#[derive(Debug)]
pub struct Folders {
    /// For results.
    pub output: PathBuf,
    /// For checkpoints.
    pub checkpoints: PathBuf,
}

impl Folders {
    /// What the command line says; the rest in a new folder. Sets the engine's `checkpoint.dir`.
    ///
    /// # Errors
    /// `--resume` without the folders of the run to be resumed.
    pub fn of(args: &mut Args) -> Result<Self, Failure> {
        let output = args.text("output").map(PathBuf::from);
        let checkpoints = args.config.checkpoint.dir.clone();
        // A savepoint is whole in itself; where results and checkpoints go is another thing.
        let from_checkpoint =
            args.text("restore-from").is_some_and(|from| from.parse::<u64>().is_ok());
        let goes_on = args.flag("resume")? || from_checkpoint;
        if goes_on && (output.is_none() || checkpoints.is_none()) {
            let text = "--resume and --restore-from ID need the --output and --checkpoints of the run to be resumed";
            return Err(Failure::Usage(text.to_owned()));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}-{}-{}", args.command.name, since.as_millis(), std::process::id());
        let fresh = PathBuf::from("out").join(name);
        let folders = Self {
            output: output.unwrap_or_else(|| fresh.join("output")),
            checkpoints: checkpoints.unwrap_or_else(|| fresh.join("checkpoints")),
        };
        args.config.checkpoint.dir = Some(folders.checkpoints.clone());
        Ok(folders)
    }
}
