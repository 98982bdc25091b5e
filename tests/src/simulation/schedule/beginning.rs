//! How a process of a schedule begins: from the last checkpoint, or from a savepoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate::id::CheckpointId;
use tidegate::runtime::simulation::Simulation;
use tidegate::{Error, ErrorKind};

use super::{Fate, Schedule};
use crate::simulation::plan::Ending;
use crate::simulation::reach::Race;

/// Where savepoints go: beside the checkpoints.
pub(super) const SAVEPOINTS: &str = "memory:";

/// The savepoint that processes begin from, until a later checkpoint is there.
pub(super) struct Origin {
    pub(super) id: CheckpointId,
    pub(super) folder: PathBuf,
    /// Whether a process has begun from it.
    has_begun: bool,
}

impl Origin {
    pub(super) fn new(folder: &Path) -> Self {
        let id = savepoint_id(&folder.to_string_lossy()).unwrap_or(CheckpointId(0));
        Self { id, folder: folder.to_owned(), has_begun: false }
    }
}

/// The id in the name of a savepoint's folder.
pub(super) fn savepoint_id(folder: &str) -> Option<CheckpointId> {
    let (_, id) = folder.rsplit_once("savepoint-")?;
    id.parse().ok().map(CheckpointId)
}

impl Schedule {
    /// Runs one process to its end.
    pub(super) fn process(&mut self) -> Fate {
        self.world().process = self.process;
        self.choose_origin();
        let before = self.size_before();
        // Records in flight on an edge without keys: the job goes on in the size it had.
        self.size = if self.is_refused { before } else { self.process as usize };
        let last = self.plan.parallelism.len() - 1;
        let nth = |at: usize| self.plan.parallelism[at.min(last)];
        self.seen.borrow_mut().is_rescaled = self.process > 0 && nth(before) != nth(self.size);
        self.is_stopping = false;
        if self.healed_at.is_some() && self.plan.ending != Ending::Exhausted && !self.has_stopped {
            // The stop has failed; the job goes on to its end.
            self.has_stopped = true;
            self.world().end_all(3);
        }
        self.tell(|| format!("process {} starts", self.process));
        let sim = match self.begin() {
            Ok(sim) => sim,
            Err(fate) => return fate,
        };
        let fate = self.drive(sim);
        for id in self.manifests().collect::<Vec<_>>() {
            self.sizes.entry(id).or_insert(self.size);
        }
        fate
    }

    /// In which size what the process begins from was taken.
    fn size_before(&self) -> usize {
        let origin = self.origin.as_ref().map(|origin| origin.id);
        let size = origin.or_else(|| self.last_manifest()).and_then(|id| self.sizes.get(&id));
        size.copied().unwrap_or(self.size)
    }

    /// Checkpoints and savepoints whose manifests are in place.
    fn manifests(&self) -> impl Iterator<Item = CheckpointId> {
        self.store.names().into_iter().filter_map(|name| {
            let folder = name.as_str().strip_suffix("/MANIFEST")?;
            let checkpoint = folder.strip_prefix("chk-").and_then(|id| id.parse().ok());
            checkpoint.map(CheckpointId).or_else(|| savepoint_id(folder))
        })
    }

    /// A savepoint is named again until a later checkpoint is there; or the job goes back to an earlier one.
    fn choose_origin(&mut self) {
        if self.origin.as_ref().is_some_and(|origin| {
            origin.has_begun && self.last_manifest().is_some_and(|last| last > origin.id)
        }) {
            self.origin = None;
        }
        let may_go_back = self.origin.is_none()
            && self.healed_at.is_none()
            && self.process > 0
            && !self.savepoints.is_empty();
        if may_go_back && self.dice.chance(self.plan.goes_back, 6) {
            let at = self.dice.below(self.savepoints.len() as u64) as usize;
            let folder = self.savepoints[at].clone();
            self.go_from(&folder);
            self.met(Race::WentBack);
        }
    }

    /// The next process begins from that savepoint; later ones belong to a past that is given up.
    pub(super) fn go_from(&mut self, folder: &Path) {
        self.tell(|| format!("the next process begins from {}", folder.display()));
        let origin = Origin::new(folder);
        self.savepoints.retain(|other| savepoint_id(&other.to_string_lossy()) <= Some(origin.id));
        self.origin = Some(origin);
    }

    fn begin(&mut self) -> Result<Simulation, Fate> {
        let mut is_again = false;
        loop {
            let plan = &self.plan;
            let place = (self.process as usize, self.size);
            let mut job = plan.job(place, &self.world, &self.fail_in);
            if let Some(origin) = &self.origin {
                job.restore_from_savepoint(&origin.folder);
            }
            let store = Arc::new(self.store.clone());
            let error = match job.simulate(store, |options| plan.tune(options)) {
                Ok(Some(sim)) => {
                    if let Some(origin) = &mut self.origin {
                        origin.has_begun = true;
                    }
                    return Ok(sim);
                }
                Ok(None) => {
                    // By a savepoint that drained it, if the process died before it could say so.
                    if self.is_drained {
                        self.world().end_here();
                    }
                    return Err(Fate::Ended);
                }
                Err(error) => error,
            };
            if !is_again && let Some(folder) = stopped_with(&error) {
                self.met(Race::StopUnknown);
                self.go_from(Path::new(&folder));
                self.has_stopped = true;
                if let Ending::Savepoint { drain: true } = self.plan.ending {
                    self.world().end_here();
                } else {
                    let more = self.dice.below(8);
                    self.world().end_all(more);
                }
                is_again = true;
                continue;
            }
            if error.kind() == ErrorKind::Io && self.healed_at.is_none() {
                self.met(Race::DiskFailsStart);
                if self.store.is_dead() {
                    self.crash(None);
                }
                return Err(Fate::Gone);
            }
            return Err(Fate::Wrong(format!("the job does not start: {error}")));
        }
    }
}

/// The savepoint with which the job was stopped, if that is why it doesn't start.
fn stopped_with(error: &Error) -> Option<String> {
    let text = error.to_string();
    let (_, rest) = text.split_once("was stopped with the savepoint ")?;
    rest.split_once(": go on from that").map(|(folder, _)| folder.to_owned())
}
