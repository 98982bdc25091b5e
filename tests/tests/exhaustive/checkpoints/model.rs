//! Which steps the small job can take next.

use std::collections::BTreeMap;

use stateright::{Model, Property};
use tidegate::control::checkpoint::metadata::{Metadata, OperatorEntry};
use tidegate::probe::break_rule;

use super::node::{Element, List, Record, Role};
use super::world::{Io, Plan, World};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A task takes its next mail.
    Mail(usize),
    /// The control thread takes a task's next report.
    Report(usize),
    /// A task serves the priority side of a channel.
    Notice(usize, usize),
    /// A task reads a channel.
    Read(usize, usize),
    /// A source emits a record, or ends.
    Emit(usize),
    /// A task does a step of finishing.
    Step(usize),
    /// A task sees that its end of data was read.
    EndTaken(usize),
    /// A task sees that what it sent has arrived.
    Flushed(usize),
    /// The I/O thread is done.
    Written(usize),
    /// The I/O thread could not write.
    NotWritten(usize),
    /// A user wants a checkpoint.
    Request,
    /// A user stops the job.
    Stop,
    /// A task fails.
    Crash(usize),
    /// All tasks are deployed again.
    Restart,
    /// The process is gone; what it was writing got to the disk, or did not.
    Lose { is_written: bool },
    /// The coordinator tries again after a failure.
    PassTime,
    /// So much time passes that the oldest pending checkpoint is given up.
    Expire,
}

impl Plan {
    fn task_actions(&self, world: &World, at: usize, actions: &mut Vec<Action>) {
        let Some(node) = &world.nodes[at] else { return };
        if !node.reports.is_empty() {
            actions.push(Action::Report(at));
        }
        if node.is_dead || node.has_left {
            return;
        }
        if !node.mail.is_empty() {
            actions.push(Action::Mail(at));
        }
        if node.runs_step {
            actions.push(Action::Step(at));
        }
        if node.is_flushing {
            actions.push(Action::Flushed(at));
        }
        if node.finish.is_ended() && !node.is_end_acknowledged && world.has_end_taken(at) {
            actions.push(Action::EndTaken(at));
        }
        for (channel, input) in node.channels.iter().enumerate() {
            if input.notice.is_some() {
                actions.push(Action::Notice(at, channel));
            } else if !input.is_blocked && !input.items.is_empty() && !node.runs_step {
                actions.push(Action::Read(at, channel));
            }
        }
        if node.role == Role::Source && !node.is_exhausted {
            actions.push(Action::Emit(at));
        }
        if world.budget.crashes > 0 && !world.is_over {
            actions.push(Action::Crash(at));
        }
    }

    fn job_actions(world: &World, actions: &mut Vec<Action>) {
        for (which, io) in world.io.iter().enumerate() {
            actions.push(Action::Written(which));
            let may_fail = world.budget.io_faults > 0;
            if may_fail && matches!(io, Io::Store(_) | Io::Finalize(_)) {
                actions.push(Action::NotWritten(which));
            }
        }
        if world.is_down && !world.coordinator.is_storing() {
            actions.push(Action::Restart);
        }
        if world.is_over {
            return;
        }
        if !world.is_down {
            if world.budget.requests > 0 {
                actions.push(Action::Request);
            }
            if world.budget.stops > 0 {
                actions.push(Action::Stop);
            }
            if world.budget.expiries > 0 && world.coordinator.pending().next().is_some() {
                actions.push(Action::Expire);
            }
        }
        if world.budget.losses > 0 {
            actions.push(Action::Lose { is_written: true });
            if world.io.iter().any(|io| matches!(io, Io::Finalize(_))) {
                actions.push(Action::Lose { is_written: false });
            }
        }
    }

    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Mail(at) => world.take_mail(at),
            Action::Report(at) => world.take_report(at),
            Action::Notice(at, channel) => world.take_notice(at, channel),
            Action::Read(at, channel) => world.read(at, channel),
            Action::Emit(at) => world.emit(at, &self.splits),
            Action::Step(at) => world.step_is_done(at),
            Action::EndTaken(at) => world.end_is_taken(at),
            Action::Flushed(at) => world.is_flushed(at),
            Action::Written(which) => world.answer(which, true),
            Action::NotWritten(which) => {
                world.budget.io_faults -= 1;
                world.answer(which, false);
            }
            Action::Request => {
                world.budget.requests -= 1;
                world.request();
            }
            Action::Stop => {
                world.budget.stops -= 1;
                world.stop();
            }
            Action::Crash(at) => {
                world.budget.crashes -= 1;
                world.die(at);
            }
            Action::Restart => world.restart(self),
            Action::Lose { is_written } => {
                world.budget.losses -= 1;
                world.lose_everything(self, is_written);
            }
            Action::PassTime => world.pass_time(),
            Action::Expire => {
                world.budget.expiries -= 1;
                world.has_expired = true;
                world.pass_time();
            }
        }
    }

    /// What a task does without waiting for anybody: its own rounds, if they are not steps of their own.
    fn settle(&self, world: &mut World) {
        if self.has_slow_steps {
            return;
        }
        loop {
            let Some(at) = (0..world.nodes.len()).find(|&at| {
                world.nodes[at].as_ref().is_some_and(|it| {
                    !it.is_dead && !it.has_left && (it.runs_step || it.is_flushing)
                })
            }) else {
                return;
            };
            if world.node(at).runs_step {
                world.step_is_done(at);
            } else {
                world.is_flushed(at);
            }
        }
    }
}

impl Model for Plan {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(self);
        self.settle(&mut world);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        for at in 0..world.nodes.len() {
            self.task_actions(world, at, actions);
        }
        Self::job_actions(world, actions);
        if actions.is_empty() && !world.is_over && world.coordinator.deadline().is_some() {
            actions.push(Action::PassTime);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let step = std::panic::AssertUnwindSafe(|| {
            self.act(&mut world, action);
            self.settle(&mut world);
        });
        break_rule(self.fault);
        let outcome = std::panic::catch_unwind(step);
        break_rule(None);
        if let Err(cause) = outcome {
            world = last.clone();
            let what = cause.downcast_ref::<String>().cloned();
            world.broken = Some(what.unwrap_or_else(|| "a machine panics".to_owned()));
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing of the protocol is broken", |_, world: &World| {
                world.broken.is_none()
            }),
            Property::always("nothing is committed twice", |_, world: &World| {
                world.committed_records().values().all(|&count| count == 1)
            }),
            Property::always("a job that ends has committed all", |plan: &Self, world: &World| {
                !world.is_over || world.committed_records() == plan.expected_records(world)
            }),
            Property::always("what stops has ended", |plan: &Self, world: &World| {
                let mut actions = Vec::new();
                plan.actions(world, &mut actions);
                !actions.is_empty() || world.is_over || world.broken.is_some()
            }),
            Property::sometimes("the job ends after a checkpoint", |_, world: &World| {
                world.is_over && world.completions > 0
            }),
        ]
    }
}

impl World {
    /// How far each split had been read in a checkpoint.
    fn read_before(&self, metadata: &Metadata<List>) -> BTreeMap<u8, u8> {
        let entries = metadata.operators.values().flat_map(OperatorEntry::entries);
        let states = entries.filter_map(|(_, entry)| entry.state()?.state.as_ref());
        let elements = states.flat_map(|list| &list.0);
        let splits = elements.filter_map(|element| match element {
            Element::Split { split, next } => Some((*split, *next)),
            Element::Waiting { .. } => None,
        });
        splits.collect()
    }

    fn has_end_taken(&self, at: usize) -> bool {
        self.lanes(at).next().is_some() && self.is_end_taken(at)
    }
}

impl Plan {
    /// What must be committed once the job is over: everything, or what lies before a savepoint that stopped it.
    fn expected_records(&self, world: &World) -> BTreeMap<Record, usize> {
        let mut all = self.all_records();
        if let Some(savepoint) = world.stopped.and_then(|id| world.store.get(&id)) {
            let read = world.read_before(savepoint);
            all.retain(|record, _| {
                read.get(&record.split).is_none_or(|next| record.number < *next)
            });
        }
        all
    }
}
