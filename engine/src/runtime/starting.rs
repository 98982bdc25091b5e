//! What a job begins from: nothing, a checkpoint of its store, or a savepoint.
//!
//! Going back to an earlier snapshot than the last takes back what was committed since, and removes the checkpoints since. The store
//! says that somebody is at it from before the first change to after the last, so that an interrupted attempt is never taken for a
//! job to be gone on with.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::graph::ExecutionGraph;
use crate::id::CheckpointId;
use crate::probe::{Fault, is_broken};
use crate::state::snapshots::{End, SnapshotReader, Snapshots, Survey};

/// What the user wants a job to begin from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing: a store that holds checkpoints is an error.
    #[default]
    Fresh,
    /// The last completed checkpoint, if there is one.
    Latest,
    /// That checkpoint of the store.
    Checkpoint(CheckpointId),
    /// The savepoint in that folder.
    Savepoint(PathBuf),
}

/// What a job begins from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Nothing.
    Fresh,
    /// That checkpoint of the store.
    Checkpoint(CheckpointId),
    /// The savepoint in that folder.
    Savepoint(CheckpointId, PathBuf),
}

impl Begin {
    /// The snapshot's id.
    pub(crate) fn snapshot(&self) -> Option<CheckpointId> {
        match self {
            Self::Fresh => None,
            Self::Checkpoint(id) | Self::Savepoint(id, _) => Some(*id),
        }
    }
}

/// Opens the savepoint in `folder`, wherever that was moved.
pub(super) fn open_savepoint(snapshots: &Snapshots, folder: &Path) -> Result<SnapshotReader> {
    SnapshotReader::open(snapshots.store().beside(folder), "")
}

/// Finds what a job begins from; `None`: it has ended. If the user wants to go back, what came later is undone before this
/// returns.
///
/// # Errors
/// `Checkpoint`: the store holds checkpoints and nobody said to go on from them, or what is wanted is not there or damaged.
/// `Unsupported`: a sink can't take back what it has committed.
pub(crate) fn begin(
    snapshots: &Snapshots,
    survey: Survey,
    wish: &Wish,
    graph: &ExecutionGraph,
) -> Result<Option<Begin>> {
    let location = snapshots.store().location().to_owned();
    let refuse = |message: String| Error::new(ErrorKind::Checkpoint, message).at_path(&location);
    let end = snapshots.end()?;
    match wish {
        Wish::Fresh => {
            if !survey.completed.is_empty() || !survey.damaged.is_empty() || end.is_some() {
                return Err(refuse(
                    "holds checkpoints of this job: give --resume (Job::resume) to go on from the last one, or \
                     use another directory"
                        .into(),
                ));
            }
            Ok(Some(Begin::Fresh))
        }
        Wish::Checkpoint(id) => {
            if !survey.completed.contains(id) {
                return Err(refuse(format!("checkpoint {id} is not there")));
            }
            go_back(snapshots, &survey, *id, &format!("checkpoint {id}"), graph)?;
            snapshots.confirm(*id)?;
            Ok(Some(Begin::Checkpoint(*id)))
        }
        Wish::Savepoint(folder) => {
            let id = open_savepoint(snapshots, folder)?.meta().id;
            go_back(snapshots, &survey, id, &format!("the savepoint {}", folder.display()), graph)?;
            Ok(Some(Begin::Savepoint(id, folder.clone())))
        }
        Wish::Latest => match end {
            Some(End::Ended) => Ok(None),
            Some(End::Savepoint(folder)) => Err(refuse(format!(
                "the job was stopped with the savepoint {folder}: go on from that"
            ))),
            Some(End::GoingBack(to)) => {
                Err(refuse(format!("going back to {to} was interrupted: give it again")))
            }
            None => {
                let latest = if is_broken(Fault::OlderRestored) {
                    survey.completed.first().copied()
                } else {
                    survey.completed.last().copied()
                };
                // Only an older one than the damaged would be left: its successor's commits may be visible.
                if let Some((id, error)) = survey.damaged.into_iter().next_back()
                    && latest.is_none_or(|latest| id > latest)
                {
                    let message = format!(
                        "checkpoint {id} is complete but damaged ({error}); name an older one to go on from that"
                    );
                    return Err(refuse(message).caused_by(error));
                }
                if let Some(id) = latest {
                    snapshots.confirm(id)?;
                }
                Ok(Some(latest.map_or(Begin::Fresh, Begin::Checkpoint)))
            }
        },
    }
}

/// Undoes what came after snapshot `to`.
fn go_back(
    snapshots: &Snapshots,
    survey: &Survey,
    to: CheckpointId,
    name: &str,
    graph: &ExecutionGraph,
) -> Result<()> {
    let sinks = || graph.vertices.iter().flat_map(|vertex| &vertex.retracts);
    let is_later =
        survey.damaged.iter().any(|(id, _)| *id > to) || survey.completed.iter().any(|id| *id > to);
    if is_later && let Some((sink, _)) = sinks().find(|(_, retract)| retract.is_none()) {
        let message = format!(
            "can't go back to {name}: the sink has committed since and can't take that back"
        );
        return Err(Error::new(ErrorKind::Unsupported, message).in_operator(sink));
    }
    snapshots.mark(Some(&End::GoingBack(name.to_owned())))?;
    for (_, retract) in sinks() {
        retract.as_ref().map_or(Ok(()), |retract| retract(to))?;
    }
    for later in snapshots.completed().into_iter().filter(|id| *id > to) {
        snapshots.remove(later)?;
    }
    snapshots.reserve_ids(CheckpointId(to.0 + 1))?;
    snapshots.mark(None)
}
