//! The order in which a task takes one snapshot, and when it is acknowledged.
//!
//! A snapshot sends the barrier on before any state is copied, then lets the operators give their state, and is
//! acknowledged when the operators' asynchronous part, the input part and the parts of senders are all there. A checkpoint
//! that was given up before its barrier came is remembered, in bounded memory, and answered with a cancellation for those
//! downstream. Invariants: checkpoints are taken in rising order, each at most once; one acknowledgement or decline each.
//!
//! The task tells what the alignment machine and the coordinator say and carries the outputs out in order.

use crate::barrier::AbortReason;
use crate::channel::event::Barrier;
use crate::clock::Timestamp;
use crate::id::CheckpointId;

/// How many checkpoints given up ahead of their barriers are remembered one by one.
pub const ABORT_MARKS_MAX: usize = 64;

/// Something happened to a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The alignment machine says [`Snapshot`](crate::barrier::Output::Snapshot).
    Take {
        /// The checkpoint.
        barrier: Barrier,
    },
    /// One of the parts is durable.
    Done {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Which part.
        part: Part,
    },
    /// A part failed: the disk is full, an operator returned an error.
    Failed {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The alignment machine says [`Abort`](crate::barrier::Output::Abort).
    LocalAbort {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// The coordinator gave the checkpoint up.
    Notice {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
}

/// What an acknowledgement waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The operators' state.
    Operators,
    /// What was captured of the input channels; at once if nothing was.
    Inputs,
    /// What the network captured on the task's lanes; at once if there is nothing.
    Outputs,
}

/// What the task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Let the operators emit what must go before the barrier.
    Prepare {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Send the barrier on every lane; an edge that must not be unaligned gets it forced aligned.
    Broadcast {
        /// The checkpoint with the options for this task's own outputs.
        barrier: Barrier,
    },
    /// Let the operators give their state and start the asynchronous part.
    Snapshot {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell those downstream not to wait.
    BroadcastCancel {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell the operators that it was given up.
    NotifyAborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Stop and drop all parts.
    Drop {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// All parts are durable: acknowledge.
    Acknowledge {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell the coordinator that the task gave it up.
    Decline {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why here; `None` if a part failed.
        reason: Option<AbortReason>,
    },
}

/// What the machine answers, to be carried out in order and then cleared.
pub type Outputs = Vec<Output>;

/// Orders the steps of a task's snapshots.
#[derive(Clone, Debug, Default, Hash)]
pub struct Machine {
    last: Option<CheckpointId>,
    running: Vec<Running>,
    /// Given up before their barriers came; ascending.
    marks: Vec<CheckpointId>,
    /// Whose end the operators have heard of, oldest first.
    notified: Vec<CheckpointId>,
    /// Whatever is not above counts as given up, for want of memory.
    marked_up_to: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    checkpoint: CheckpointId,
    operators: bool,
    inputs: bool,
    outputs: bool,
}

impl Machine {
    /// The machine of a task restored from `restored`, if it was.
    pub fn new(restored: Option<CheckpointId>) -> Self {
        Self { last: restored, ..Self::default() }
    }

    /// Takes one input and appends to `out` what the task is to do, in order.
    pub fn handle(&mut self, _now: Timestamp, input: Input, out: &mut Outputs) {
        match input {
            Input::Take { barrier } => self.take(barrier, out),
            Input::Done { checkpoint, part } => self.done(checkpoint, part, out),
            Input::Failed { checkpoint } => {
                if self.end(checkpoint) {
                    out.push(Output::Drop { checkpoint });
                    out.push(Output::Decline { checkpoint, reason: None });
                }
            }
            Input::LocalAbort { checkpoint, reason } => self.local_abort(checkpoint, reason, out),
            Input::Notice { checkpoint } => self.notice(checkpoint, out),
        }
        debug_assert!(self.running.iter().all(|running| Some(running.checkpoint) <= self.last));
        debug_assert!(self.marks.len() <= ABORT_MARKS_MAX);
    }

    /// Checkpoints whose parts are not all there, ascending.
    pub fn running(&self) -> impl Iterator<Item = CheckpointId> + '_ {
        self.running.iter().map(|running| running.checkpoint)
    }

    /// How many checkpoints given up ahead are remembered.
    pub fn marks(&self) -> usize {
        self.marks.len()
    }

    fn take(&mut self, barrier: Barrier, out: &mut Outputs) {
        let checkpoint = barrier.checkpoint;
        if Some(checkpoint) <= self.last {
            out.push(Output::Drop { checkpoint });
            return;
        }
        self.last = Some(checkpoint);
        let marked = self.marks.contains(&checkpoint) || Some(checkpoint) <= self.marked_up_to;
        self.marks.retain(|&mark| mark > checkpoint);
        if marked {
            out.push(Output::BroadcastCancel { checkpoint });
            out.push(Output::Drop { checkpoint });
            return;
        }
        self.running.push(Running { checkpoint, operators: false, inputs: false, outputs: false });
        // The receiving task has aligned: its own outputs may be overtaken again.
        let barrier = Barrier { options: barrier.options.original(), ..barrier };
        out.extend([
            Output::Prepare { checkpoint },
            Output::Broadcast { barrier },
            Output::Snapshot { checkpoint },
        ]);
    }

    fn done(&mut self, checkpoint: CheckpointId, part: Part, out: &mut Outputs) {
        let Some(running) = self.running.iter_mut().find(|r| r.checkpoint == checkpoint) else {
            return;
        };
        match part {
            Part::Operators => running.operators = true,
            Part::Inputs => running.inputs = true,
            Part::Outputs => running.outputs = true,
        }
        if running.operators && running.inputs && running.outputs {
            self.end(checkpoint);
            out.push(Output::Acknowledge { checkpoint });
        }
    }

    fn local_abort(&mut self, checkpoint: CheckpointId, reason: AbortReason, out: &mut Outputs) {
        let ran = self.end(checkpoint);
        self.last = self.last.max(Some(checkpoint));
        self.marks.retain(|&mark| mark > checkpoint);
        out.push(Output::BroadcastCancel { checkpoint });
        // Operators hear of it before anything they wait for fails.
        self.notify(checkpoint, out);
        if ran {
            out.push(Output::Drop { checkpoint });
        }
        match reason {
            AbortReason::Subsumed
            | AbortReason::CancellationBarrier
            | AbortReason::InputEndOfStream => {
                out.push(Output::Decline { checkpoint, reason: Some(reason) });
            }
            AbortReason::Notice => {}
        }
    }

    fn notice(&mut self, checkpoint: CheckpointId, out: &mut Outputs) {
        self.notify(checkpoint, out);
        if self.end(checkpoint) {
            out.push(Output::Drop { checkpoint });
        } else if Some(checkpoint) > self.last
            && let Err(at) = self.marks.binary_search(&checkpoint)
        {
            self.marks.insert(at, checkpoint);
            if self.marks.len() > ABORT_MARKS_MAX {
                self.marked_up_to = Some(self.marks.remove(0));
            }
        }
    }

    /// Operators hear of the end of a checkpoint once, whoever ends it first.
    fn notify(&mut self, checkpoint: CheckpointId, out: &mut Outputs) {
        if self.notified.contains(&checkpoint) {
            return;
        }
        if self.notified.len() == ABORT_MARKS_MAX {
            self.notified.remove(0);
        }
        self.notified.push(checkpoint);
        out.push(Output::NotifyAborted { checkpoint });
    }

    /// Whether it was running.
    fn end(&mut self, checkpoint: CheckpointId) -> bool {
        let before = self.running.len();
        self.running.retain(|running| running.checkpoint != checkpoint);
        self.running.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::options::CheckpointOptions;

    fn barrier(n: u64, options: CheckpointOptions) -> Barrier {
        Barrier { checkpoint: CheckpointId(n), timestamp: Timestamp::ZERO, options }
    }

    fn take(n: u64) -> Input {
        Input::Take { barrier: barrier(n, CheckpointOptions::aligned()) }
    }

    fn outputs(machine: &mut Machine, inputs: &[Input]) -> Outputs {
        let mut out = Outputs::new();
        for &input in inputs {
            machine.handle(Timestamp::ZERO, input, &mut out);
        }
        out
    }

    fn done(n: u64) -> [Input; 3] {
        [Part::Inputs, Part::Operators, Part::Outputs]
            .map(|part| Input::Done { checkpoint: CheckpointId(n), part })
    }

    #[test]
    fn the_barrier_goes_on_before_state_is_copied() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        assert_eq!(
            outputs(&mut machine, &[take(1)]),
            [
                Output::Prepare { checkpoint },
                Output::Broadcast { barrier: barrier(1, CheckpointOptions::aligned()) },
                Output::Snapshot { checkpoint },
            ]
        );
    }

    #[test]
    fn os_09_a_forced_aligned_barrier_gets_its_options_back() {
        let mut machine = Machine::new(None);
        let original = CheckpointOptions::unaligned();
        let forced = Input::Take { barrier: barrier(1, original.forced_aligned()) };
        let sent = Output::Broadcast { barrier: barrier(1, original) };
        assert!(outputs(&mut machine, &[forced]).contains(&sent));
    }

    #[test]
    fn ft_11_a_snapshot_is_acknowledged_once_and_only_with_all_parts() {
        let checkpoint = CheckpointId(1);
        for missing in 0..3 {
            let mut machine = Machine::new(None);
            let mut parts = done(1).to_vec();
            let last = parts.remove(missing);
            outputs(&mut machine, &[take(1)]);
            assert!(outputs(&mut machine, &parts).is_empty());
            assert_eq!(outputs(&mut machine, &[last]), [Output::Acknowledge { checkpoint }]);
            assert!(outputs(&mut machine, &[last]).is_empty());
        }
    }

    #[test]
    fn a_snapshot_taken_before_is_dropped() {
        let mut machine = Machine::new(Some(CheckpointId(3)));
        let checkpoint = CheckpointId(3);
        assert_eq!(outputs(&mut machine, &[take(3)]), [Output::Drop { checkpoint }]);
    }

    #[test]
    fn cw_03_a_checkpoint_below_one_that_was_given_up_is_not_begun() {
        let mut machine = Machine::new(None);
        let (checkpoint, reason) = (CheckpointId(2), AbortReason::CancellationBarrier);
        outputs(&mut machine, &[Input::LocalAbort { checkpoint, reason }]);
        let checkpoint = CheckpointId(1);
        assert_eq!(outputs(&mut machine, &[take(1)]), [Output::Drop { checkpoint }]);
        assert!(outputs(&mut machine, &done(1)).is_empty(), "and never acknowledged");
        assert_eq!(outputs(&mut machine, &[take(3)]).len(), 3, "3 is taken");
    }

    #[test]
    fn cw_07_a_checkpoint_given_up_before_its_barrier_is_cancelled_downstream() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(2);
        outputs(&mut machine, &[Input::Notice { checkpoint }]);
        assert_eq!(
            outputs(&mut machine, &[take(2)]),
            [Output::BroadcastCancel { checkpoint }, Output::Drop { checkpoint }]
        );
        assert!(outputs(&mut machine, &done(2)).is_empty());
        assert_eq!((machine.marks(), machine.running().count()), (0, 0));
    }

    #[test]
    fn cw_08_marks_are_bounded() {
        let mut machine = Machine::new(None);
        let many = ABORT_MARKS_MAX as u64 + 42;
        for n in 1..=many {
            outputs(&mut machine, &[Input::Notice { checkpoint: CheckpointId(n) }]);
        }
        assert_eq!(machine.marks(), ABORT_MARKS_MAX);
        // Those that were forgotten count as given up.
        for n in 1..=many {
            let out = outputs(&mut machine, &[take(n)]);
            assert_eq!(out[0], Output::BroadcastCancel { checkpoint: CheckpointId(n) });
        }
        assert_eq!(outputs(&mut machine, &[take(many + 1)]).len(), 3);
    }

    #[test]
    fn un_13_operators_hear_of_an_abort_before_the_parts_fail() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        let reason = AbortReason::CancellationBarrier;
        outputs(&mut machine, &[take(1)]);
        assert_eq!(
            outputs(&mut machine, &[Input::LocalAbort { checkpoint, reason }]),
            [
                Output::BroadcastCancel { checkpoint },
                Output::NotifyAborted { checkpoint },
                Output::Drop { checkpoint },
                Output::Decline { checkpoint, reason: Some(reason) },
            ]
        );
    }

    #[test]
    fn k20_a_subsumed_checkpoint_is_declined_not_failed() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        let reason = AbortReason::Subsumed;
        let out = outputs(&mut machine, &[Input::LocalAbort { checkpoint, reason }]);
        assert_eq!(out.last(), Some(&Output::Decline { checkpoint, reason: Some(reason) }));
    }

    #[test]
    fn k09_a_snapshot_waits_for_barriers_of_slow_channels() {
        // It was acknowledged without the state of channels whose barriers were still to come.
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        let part = |part| Input::Done { checkpoint, part };
        outputs(&mut machine, &[take(1)]);
        assert!(outputs(&mut machine, &[part(Part::Outputs), part(Part::Operators)]).is_empty());
        let late = outputs(&mut machine, &[part(Part::Inputs)]);
        assert_eq!(late, [Output::Acknowledge { checkpoint }]);
    }

    #[test]
    fn k27_an_abort_out_of_order_touches_its_own_checkpoint_only() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(3);
        outputs(&mut machine, &[Input::Notice { checkpoint }]);
        assert_eq!(outputs(&mut machine, &[take(2)]).len(), 3, "2 is taken");
        assert_eq!(outputs(&mut machine, &[take(3)])[0], Output::BroadcastCancel { checkpoint });
        assert_eq!(outputs(&mut machine, &done(2)).len(), 1, "2 is acknowledged");
    }

    #[test]
    fn a_failed_part_declines_and_what_follows_is_ignored() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        outputs(&mut machine, &[take(1)]);
        assert_eq!(
            outputs(&mut machine, &[Input::Failed { checkpoint }, Input::Failed { checkpoint }]),
            [Output::Drop { checkpoint }, Output::Decline { checkpoint, reason: None }]
        );
        assert!(outputs(&mut machine, &done(1)).is_empty());
    }

    #[test]
    fn operators_hear_of_an_abort_once() {
        let checkpoint = CheckpointId(1);
        let local = |reason| Input::LocalAbort { checkpoint, reason };
        let notice = Input::Notice { checkpoint };
        for inputs in [
            [take(1), local(AbortReason::Subsumed), notice],
            [take(1), notice, local(AbortReason::Notice)],
            [notice, local(AbortReason::Notice), notice],
        ] {
            let out = outputs(&mut Machine::new(None), &inputs);
            let heard = out.iter().filter(|o| matches!(o, Output::NotifyAborted { .. }));
            assert_eq!(heard.count(), 1, "{inputs:?}");
            assert!(out.contains(&Output::BroadcastCancel { checkpoint }), "{inputs:?}");
        }
    }

    #[test]
    fn a_notice_stops_a_running_snapshot_without_a_decline() {
        let mut machine = Machine::new(None);
        let checkpoint = CheckpointId(1);
        outputs(&mut machine, &[take(1)]);
        assert_eq!(
            outputs(&mut machine, &[Input::Notice { checkpoint }]),
            [Output::NotifyAborted { checkpoint }, Output::Drop { checkpoint }]
        );
    }
}
