//! What the tasks of the small job do: carries out what their machines say, as `engine/src/task` does it.

use tidegate::barrier;
use tidegate::channel::event::{Barrier, Position};
use tidegate::channel::options::CheckpointKind;
use tidegate::control::checkpoint::message::Ack;
use tidegate::id::{ChannelIndex, CheckpointId};
use tidegate::task::{finish, snapshot};

use super::node::{Element, Item, Mail, Record, Report, Role, Told, Transaction};
use super::world::World;

impl World {
    /// A task takes its next mail.
    pub(crate) fn take_mail(&mut self, at: usize) {
        let Some(mail) = self.node(at).mail.pop_front() else { return };
        match mail {
            Mail::Trigger(barrier) => {
                let kind = barrier.options.kind();
                self.node(at).is_exhausted |=
                    matches!(kind, CheckpointKind::StopWithSavepoint { .. });
                self.finish(at, finish::Input::Trigger { barrier });
            }
            Mail::Complete(checkpoint) => self.finish(at, finish::Input::Complete { checkpoint }),
            Mail::Aborted { checkpoint, latest } => {
                self.finish(at, finish::Input::Aborted { checkpoint, latest });
            }
            Mail::Granted => self.finish(at, finish::Input::Granted),
            Mail::Held(pending) => self.finish(at, finish::Input::Hold { pending }),
        }
    }

    /// A task serves the priority side of a channel.
    pub(crate) fn take_notice(&mut self, at: usize, channel: usize) {
        if let Some(notice) = self.node(at).channels[channel].notice.take() {
            self.align(at, notice);
        }
    }

    /// A task reads what stands next in a channel.
    pub(crate) fn read(&mut self, at: usize, channel: usize) {
        let Some(item) = self.node(at).channels[channel].items.pop_front() else { return };
        let place = ChannelIndex(channel as u32);
        match item {
            Item::Record(record) => {
                let is_late = self.node(at).finish.operators_finished();
                self.check(!is_late, || format!("{record:?} after its task's end"));
                self.process(at, record);
            }
            Item::Barrier(barrier) => {
                self.align(at, barrier::Input::Barrier { channel: place, barrier });
            }
            Item::Cancel(checkpoint) => {
                self.align(at, barrier::Input::Cancel { channel: place, checkpoint });
            }
            Item::EndOfData { drain } => {
                self.node(at).channels[channel].is_end_read = true;
                self.align(at, barrier::Input::EndOfData { channel: place });
                self.finish(at, finish::Input::EndOfData { channel: place, drain });
            }
            Item::EndOfPartition => {
                self.align(at, barrier::Input::EndOfPartition { channel: place });
                self.finish(at, finish::Input::EndOfPartition { channel: place });
            }
        }
    }

    /// A source emits its next record, or ends.
    pub(crate) fn emit(&mut self, at: usize, totals: &[u8]) {
        let next = self.next_record(at, totals);
        match next {
            Some(record) => {
                *self.node(at).splits.entry(record.split).or_default() += 1;
                self.send(at, Item::Record(record));
            }
            None => {
                self.node(at).is_exhausted = true;
                self.finish(at, finish::Input::SourceEnded);
            }
        }
    }

    /// The record that the source at `at` has not read.
    pub(crate) fn next_record(&self, at: usize, totals: &[u8]) -> Option<Record> {
        let node = self.nodes[at].as_ref()?;
        let (&split, &number) =
            node.splits.iter().find(|&(&split, &next)| next < totals[split as usize])?;
        Some(Record { split, number })
    }

    /// Whether all consumers of the task at `at` have read its end of data.
    pub(crate) fn is_end_taken(&self, at: usize) -> bool {
        self.lanes(at).all(|(consumer, channel)| {
            self.nodes[consumer].as_ref().is_some_and(|node| node.channels[channel].is_end_read)
        })
    }

    /// The task sees that its consumers have read its end of data.
    pub(crate) fn end_is_taken(&mut self, at: usize) {
        self.node(at).is_end_acknowledged = true;
        self.finish(at, finish::Input::EndOfDataAcked { lane: 0 });
    }

    pub(crate) fn step_is_done(&mut self, at: usize) {
        self.node(at).runs_step = false;
        self.finish(at, finish::Input::StepDone);
    }

    pub(crate) fn is_flushed(&mut self, at: usize) {
        self.node(at).is_flushing = false;
        self.finish(at, finish::Input::Flushed);
    }

    /// The channels that the task at `at` feeds: consumer and its channel.
    pub(crate) fn lanes(&self, at: usize) -> impl Iterator<Item = (usize, usize)> {
        let producer = self.topology.subtasks().nth(at).expect("the job has that task");
        self.topology.subtasks().enumerate().flat_map(move |(consumer, subtask)| {
            self.topology
                .channels(subtask)
                .filter(move |&(_, from)| from == producer)
                .map(move |(channel, _)| (consumer, channel.0 as usize))
        })
    }

    /// Tells the finish machine something and does what it says.
    pub(crate) fn finish(&mut self, at: usize, input: finish::Input) {
        if self.node(at).is_dead {
            return;
        }
        let mut out = finish::Outputs::new();
        let now = self.now;
        self.node(at).finish.handle(now, input, &mut out);
        for output in out {
            self.carry_out_finish(at, output);
        }
    }

    fn carry_out_finish(&mut self, at: usize, output: finish::Output) {
        match output {
            finish::Output::Run(_) => self.node(at).runs_step = true,
            finish::Output::AckEndOfData { .. } | finish::Output::CloseOperators => {}
            finish::Output::BroadcastEndOfData { drain } => {
                self.send(at, Item::EndOfData { drain });
                self.report(at, Report::Control(Told::EndOfData));
            }
            finish::Output::Take { barrier } => {
                let input = match self.node(at).role {
                    Role::Source => barrier::Input::Barrier { channel: ChannelIndex(0), barrier },
                    Role::Pass | Role::EmitsOnCommit | Role::Commits => {
                        barrier::Input::Trigger { barrier }
                    }
                };
                self.align(at, input);
            }
            finish::Output::DeclineClosing { checkpoint } => {
                self.report(at, Report::Control(Told::Declined(checkpoint)));
            }
            finish::Output::NotifyComplete { checkpoint } => self.complete(at, checkpoint),
            finish::Output::Abort { checkpoint } => {
                self.order(at, snapshot::Input::Notice { checkpoint });
                self.align(at, barrier::Input::Abort { checkpoint });
            }
            finish::Output::AwaitsCheckpoint(awaits) => {
                self.report(at, Report::Control(Told::Awaits(awaits)));
            }
            finish::Output::Flush => self.node(at).is_flushing = true,
            finish::Output::AskPermit { .. } => {
                self.report(at, Report::Control(Told::FinishRequest));
            }
            finish::Output::CloseMailbox => {
                let mail = &self.node(at).mail;
                let holds_trigger = mail.iter().any(|mail| matches!(mail, Mail::Trigger(_)));
                self.check(!holds_trigger, || format!("task {at} leaves a trigger unread"));
            }
            finish::Output::EmitEndOfPartition => self.leave(at),
            finish::Output::Fail { cause } => {
                self.check(self.is_stopping, || format!("task {at} fails: {cause:?}"));
                self.die(at);
            }
        }
    }

    /// Invariants: a task leaves with everything of its acknowledged, and while nobody waits for it.
    fn leave(&mut self, at: usize) {
        let id = self.node(at).id;
        let owed = self.coordinator.pending().find(|it| it.awaits(id.subtask)).map(|it| it.id);
        self.check(owed.is_none(), || format!("{id} leaves, though {owed:?} waits for it"));
        let is_busy = !self.node(at).taken.is_empty() || self.node(at).order.running().count() > 0;
        self.check(!is_busy, || format!("{id} leaves with a snapshot under way"));
        let is_held = !self.node(at).waiting.is_empty() || !self.node(at).open.is_empty();
        let lost = is_held && self.stopped.is_none();
        self.check(!lost, || format!("{id} leaves with something uncommitted"));
        self.send(at, Item::EndOfPartition);
        self.node(at).has_left = true;
        self.report(at, Report::Finished);
    }

    /// Tells the alignment machine something and does what it says.
    pub(crate) fn align(&mut self, at: usize, input: barrier::Input) {
        if self.node(at).is_dead {
            return;
        }
        let mut out = barrier::Outputs::new();
        let now = self.now;
        self.node(at).align.handle(now, input, &mut out);
        for output in out {
            match output {
                barrier::Output::Block { channel } => self.set_blocked(at, channel, true),
                barrier::Output::Resume { channel } => self.set_blocked(at, channel, false),
                barrier::Output::Snapshot { barrier } => self.snapshot(at, barrier),
                barrier::Output::Completed { checkpoint } => {
                    let part = snapshot::Part::Inputs;
                    self.order(at, snapshot::Input::Done { checkpoint, part });
                }
                barrier::Output::Abort { checkpoint, reason } => {
                    self.order(at, snapshot::Input::LocalAbort { checkpoint, reason });
                }
                barrier::Output::Decline { checkpoint } => {
                    self.report(at, Report::Control(Told::Declined(checkpoint)));
                }
                barrier::Output::CaptureStart { .. }
                | barrier::Output::CaptureUntil { .. }
                | barrier::Output::CaptureLoaded { .. }
                | barrier::Output::CaptureStop { .. }
                | barrier::Output::CaptureAbort { .. } => {
                    self.complain(|| "an aligned checkpoint captures".to_owned());
                }
            }
        }
    }

    fn set_blocked(&mut self, at: usize, channel: ChannelIndex, is_blocked: bool) {
        // A source's own channel has no queue.
        if let Some(channel) = self.node(at).channels.get_mut(channel.0 as usize) {
            channel.is_blocked = is_blocked;
        }
    }

    fn snapshot(&mut self, at: usize, barrier: Barrier) {
        let checkpoint = barrier.checkpoint;
        self.order(at, snapshot::Input::Take { barrier });
        self.finish(at, finish::Input::SnapshotTaken { barrier });
        if self.node(at).order.running().all(|running| running != checkpoint) {
            self.finish(at, finish::Input::SnapshotOver { checkpoint });
        }
    }

    /// Tells the machine of the order of snapshots something and does what it says.
    fn order(&mut self, at: usize, input: snapshot::Input) {
        let mut out = snapshot::Outputs::new();
        let now = self.now;
        self.node(at).order.handle(now, input, &mut out);
        for output in out {
            match output {
                snapshot::Output::Prepare { .. } | snapshot::Output::NotifyAborted { .. } => {}
                snapshot::Output::Broadcast { barrier } => self.send(at, Item::Barrier(barrier)),
                snapshot::Output::BroadcastCancel { checkpoint } => {
                    self.send(at, Item::Cancel(checkpoint));
                }
                snapshot::Output::Snapshot { checkpoint } => self.take(at, checkpoint),
                snapshot::Output::Drop { checkpoint } => {
                    self.node(at).taken.remove(&checkpoint);
                    self.finish(at, finish::Input::SnapshotOver { checkpoint });
                }
                snapshot::Output::Acknowledge { checkpoint } => {
                    if let Some(ack) = self.node(at).taken.remove(&checkpoint) {
                        self.report(at, Report::Snapshot(Box::new(ack)));
                    }
                    self.finish(at, finish::Input::SnapshotOver { checkpoint });
                }
                snapshot::Output::Decline { checkpoint, reason } => {
                    if reason.is_some() {
                        self.report(at, Report::Control(Told::Declined(checkpoint)));
                    }
                    self.finish(at, finish::Input::SnapshotOver { checkpoint });
                }
            }
        }
    }

    /// The operator hands out its state.
    fn take(&mut self, at: usize, checkpoint: CheckpointId) {
        let node = self.node(at);
        let open = std::mem::take(&mut node.open);
        if !open.is_empty() {
            node.waiting.insert(checkpoint, open);
        }
        let ack = Ack {
            operators: vec![Some(node.state())],
            operators_finished: node.finish.operators_finished(),
            ended_inputs: node.finish.ended_inputs().iter().map(|&it| it as u32).collect(),
            holds_uncommitted: !node.waiting.is_empty(),
            ..Ack::empty(checkpoint, node.id)
        };
        node.taken.insert(checkpoint, ack);
        for part in [snapshot::Part::Operators, snapshot::Part::Outputs] {
            self.order(at, snapshot::Input::Done { checkpoint, part });
        }
    }

    fn process(&mut self, at: usize, record: Record) {
        match self.node(at).role {
            Role::Source | Role::Pass => self.send(at, Item::Record(record)),
            Role::EmitsOnCommit | Role::Commits => self.node(at).open.push(record),
        }
    }

    /// The operator commits what waits for `checkpoint` or an earlier one.
    fn complete(&mut self, at: usize, checkpoint: CheckpointId) {
        let node = self.node(at);
        let later = node.waiting.split_off(&CheckpointId(checkpoint.0 + 1));
        let due = std::mem::replace(&mut node.waiting, later);
        let by = node.id;
        for (checkpoint, records) in due {
            self.commit(at, Transaction { by, checkpoint }, records);
        }
    }

    /// Makes a transaction visible; making it visible again changes nothing.
    fn commit(&mut self, at: usize, transaction: Transaction, records: Vec<Record>) {
        match self.node(at).role {
            Role::Commits => {
                let before = self.committed.insert(transaction, records.clone());
                let is_same = before.is_none_or(|before| before == records);
                self.check(is_same, || format!("{transaction:?} changed"));
            }
            Role::Source | Role::Pass | Role::EmitsOnCommit => {
                for record in records {
                    self.send(at, Item::Record(record));
                }
            }
        }
    }

    /// The operator takes back its state; what waited for the checkpoint it comes from is committed.
    pub(crate) fn restore_elements(&mut self, at: usize, elements: Vec<Element>) {
        for element in elements {
            match element {
                Element::Split { split, next } => {
                    self.node(at).splits.insert(split, next);
                }
                Element::Waiting { transaction, records } => self.commit(at, transaction, records),
            }
        }
    }

    /// Puts something into the task's lanes.
    fn send(&mut self, at: usize, item: Item) {
        let is_gone = self.node(at).has_left;
        self.check(!is_gone, || format!("task {at} sends {item:?} after its end"));
        let lanes: Vec<_> = self.lanes(at).collect();
        let vertex_of = |world: &Self, at: usize| world.nodes[at].as_ref().map(|it| it.id.subtask);
        for (number, &(consumer, channel)) in lanes.iter().enumerate() {
            if vertex_of(self, consumer).is_none() {
                continue;
            }
            let input = &mut self.node(consumer).channels[channel];
            match item {
                Item::Record(record) => {
                    let share = usize::from(record.split + record.number) % lanes.len();
                    if share != number {
                        continue;
                    }
                }
                Item::Barrier(Barrier { checkpoint, .. }) | Item::Cancel(checkpoint) => {
                    input.last_barrier = input.last_barrier.max(checkpoint.0);
                }
                Item::EndOfPartition => {
                    input.notice = Some(barrier::Input::FinishNotice {
                        channel: ChannelIndex(channel as u32),
                        next: CheckpointId(input.last_barrier + 1),
                        position: Position(0),
                    });
                }
                Item::EndOfData { .. } => {}
            }
            input.items.push_back(item);
        }
    }

    pub(crate) fn report(&mut self, at: usize, report: Report) {
        self.node(at).reports.push_back(report);
    }

    /// The task fails: it does nothing more, and reports it.
    pub(crate) fn die(&mut self, at: usize) {
        self.node(at).is_dead = true;
        self.report(at, Report::Failed);
    }
}
