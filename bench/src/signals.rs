//! SIGINT and SIGTERM: the first asks the job to stop with a last checkpoint, the second ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Incoming;

use crate::failure::Failure;

/// What came of signals so far.
#[derive(Clone, Debug)]
pub struct Signals {
    is_asked: Arc<AtomicBool>,
}

impl Signals {
    /// Takes the signals over, for the rest of the process's life.
    ///
    /// # Errors
    /// The system doesn't let it.
    pub fn install() -> Result<Self, Failure> {
        let failed = |error| Failure::Other(format!("can't take signals: {error}"));
        let mut incoming = Incoming::new([SIGINT, SIGTERM]).map_err(failed)?;
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = is_asked.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in incoming.forever() {
                    if asked.swap(true, Ordering::Relaxed) {
                        eprintln!("stopped at once");
                        std::process::exit(1);
                    }
                    eprintln!("stopping with a last checkpoint; once more to stop at once");
                }
            })
            .map_err(failed)?;
        Ok(Self { is_asked })
    }

    /// Whether the job is to stop.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}
