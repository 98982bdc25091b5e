//! What the coordinator tells of checkpoints, on the way to the job's status and to the job master.

use std::time::Duration;

use super::Control;
use super::failed::FailedCheckpoint;
use crate::control::checkpoint::message::Fact;
use crate::probe;
use crate::runtime::snapshot_io::wall_of;
use crate::runtime::status::{CHECKPOINTS_MAX, CheckpointStats};

impl Control {
    pub(super) fn fact(&mut self, fact: Fact) {
        probe::note(None, &fact);
        match fact {
            Fact::Triggered { checkpoint, .. } => {
                let now = self.clock.now();
                self.triggered.insert(checkpoint, (now, Duration::ZERO, 0));
                self.triggered_snapshot(checkpoint);
                let triggered_at = wall_of(self.clock, now);
                self.shared.update(|board| {
                    board.checkpoint_under_way = Some((checkpoint, triggered_at));
                });
            }
            Fact::Completed { checkpoint, took, kind } => {
                let finished = self.left_out.remove(&checkpoint).unwrap_or_default();
                if kind.is_notified() {
                    self.cluster.checkpoint_completed(finished);
                }
                let (at, alignment, bytes) = self.triggered.remove(&checkpoint).unwrap_or_default();
                self.triggered = self.triggered.split_off(&checkpoint);
                self.failure_causes.retain(|id, _| *id > checkpoint);
                let stats = CheckpointStats {
                    id: checkpoint,
                    triggered_at: wall_of(self.clock, at),
                    duration: took,
                    alignment,
                    bytes,
                };
                self.shared.update(|board| {
                    board.checkpoint_under_way.take_if(|(id, _)| *id <= checkpoint);
                    if !kind.is_notified() {
                        return;
                    }
                    board.checkpoints_completed += 1;
                    if board.checkpoints.len() == CHECKPOINTS_MAX {
                        board.checkpoints.remove(0);
                    }
                    board.checkpoints.push(stats);
                });
            }
            Fact::Failed { checkpoint, reason, unacknowledged, kind } => {
                let cause = checkpoint.and_then(|id| self.failure_causes.get(&id).cloned());
                let mut text = reason.to_string();
                if let Some(cause) = cause {
                    text = format!("{text}: {cause}");
                }
                if let Some(id) = checkpoint {
                    self.left_out.remove(&id);
                    self.savepoints.remove(&id);
                    self.failed_stop = kind.is_stop().then_some(id);
                    let who = unacknowledged.iter().map(|entry| entry.task);
                    let failed = FailedCheckpoint::new(id, text, who, &self.graph);
                    text = failed.to_string();
                    self.last_failed = Some(failed);
                }
                self.shared.update(|board| {
                    board.checkpoint_under_way.take_if(|(id, _)| Some(*id) == checkpoint);
                    board.checkpoints_failed += 1;
                    // One that did not even begin says less than one that failed.
                    if checkpoint.is_some() || board.last_checkpoint_failure.is_none() {
                        board.last_checkpoint_failure = Some(text);
                    }
                });
            }
            Fact::Acknowledged { .. } | Fact::LateAck { .. } => {}
        }
    }
}
