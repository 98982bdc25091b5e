//! Which races a schedule has met: counters that an observer of the machines raises, so that a run can tell that it saw them.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::barrier;
use tidegate::channel::options::CheckpointKind;
use tidegate::clock::Timestamp;
use tidegate::control::checkpoint::failure::FailureReason;
use tidegate::control::checkpoint::message::Fact;
use tidegate::id::{AttemptId, ChannelIndex, CheckpointId, SubtaskId};
use tidegate::probe::{Deployed, TriggerHeld};
use tidegate::task::finish;

use super::world::World;

macro_rules! races {
    ($($name:ident = $text:literal,)+) => {
        /// A race that schedules are to meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Race { $(#[doc = $text] $name,)+ }

        impl Race {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

races! {
    BarrierThenEnd = "a barrier, then end of partition on the same channel",
    EndWhileAligning = "end of partition while another channel's barrier is awaited",
    EndSwitches = "end of partition or its notice makes a checkpoint unaligned",
    EndCompletes = "end of partition is the last barrier",
    NoticeBeforeBarrier = "finish notice before the first barrier",
    NoticeWhileAligning = "finish notice while aligning",
    NoticeWhileCapturing = "finish notice while capturing",
    NoticeAfterBarrier = "finish notice behind the channel's own barrier",
    TriggerAllEnded = "trigger when all channels have ended",
    TriggerWhileOpen = "trigger while a channel is open",
    TriggerAndBarrier = "trigger and barrier of one checkpoint",
    Announced = "announcement before any barrier",
    AnnouncedWhileCapturing = "announcement while capturing",
    TimedOut = "timeout while aligning",
    TimedOutOnlyAnnounced = "timeout before any barrier was read",
    LateBarrierSwitches = "barrier after the deadline makes it unaligned",
    LastBarrierLate = "last barrier after the deadline stays aligned",
    BarrierWhileCapturing = "barrier in band while capturing",
    Overtaken = "unaligned barrier while another channel is behind",
    Obsolete = "barrier of a checkpoint that is over",
    SubsumedAtTask = "newer barrier before the older is complete",
    AbortWhileCapturing = "abort while capturing",
    AbortWhileAligning = "abort while aligning",
    AbortBeforeBarrier = "abort before any barrier",
    AbortRepairsNotice = "abort brings a lost completion",
    HalfRead = "cut of a half-read buffer",
    WatermarkCaptured = "cut with a watermark inside",
    ManyChannelsCaptured = "cut of several channels",
    RestartWhileAligning = "restart while aligning",
    RestartWhileCapturing = "restart while capturing",
    RestartWithoutCheckpoint = "restart before the first checkpoint",
    BornEnded = "born-ended channel",
    OperatorsFinishedRestored = "restore of a subtask whose operators had finished",
    LeftOut = "finished tasks left out of a restore",
    InFlightRestored = "restore with records in flight",
    InFlightRescaled = "rescale with records in flight",
    Rescaled = "rescale",
    PermitHeld = "permit held",
    PermitGranted = "permit granted",
    SnapshotWhileLeaving = "snapshot while leaving",
    GrantedWhilePending = "permit granted while a checkpoint is pending elsewhere",
    FinalCheckpoint = "a task waits for a final checkpoint",
    FinalCheckpointFails = "a final checkpoint fails and another one lets the task go",
    SourceEndsWhilePending = "a source ends while a checkpoint is pending",
    StopMeetsEnd = "stop with savepoint meets end of data",
    StopFails = "a stop's savepoint is given up",
    StopWhilePending = "stop while a checkpoint is pending",
    Expired = "a checkpoint expires",
    Declined = "a checkpoint is declined",
    LateAck = "acknowledgement for what is over",
    ZombieAck = "acknowledgement of an earlier attempt",
    ReportWhileCancelling = "report while the job is being cancelled",
    FailureWhileCancelling = "a task fails while the job is being cancelled",
    CrashBeforeTold = "manifest in place, crash before control knows",
    CrashBeforeNotice = "checkpoint complete, crash before a task knows",
    CrashWhileWriting = "crash while states wait to be written",
    CrashInDisk = "crash within a disk operation",
    CrashWhileRestarting = "crash while restarting",
    CrashLosesUnsynced = "crash loses what was not synced",
    CrashTears = "crash tears what was not synced",
    DiskFailsState = "the disk fails while a state is written",
    DiskFailsManifest = "the disk fails while a manifest is written",
    DiskFailsUnknown = "unknown whether a manifest is in place",
    DiskFailsReserve = "the disk fails while ids are reserved",
    DiskFailsRemove = "the disk fails while a checkpoint is removed",
    DiskFailsStart = "the disk fails while a process starts",
    PrepareFails = "a sink can't prepare",
    CommitCut = "a commit is cut short",
    CommitRepeated = "a commit is repeated",
    EndedAgain = "a job that has ended is started again",
    FinishedUnmarked = "all finished, but the end could not be marked",
    ConcurrentCheckpoints = "two checkpoints under way",
    TriggerHeld = "trigger for a task with an older barrier unread",
    EndHeld = "two commit stages at the end",
    AllSourcesFinished = "all sources finished at restore",
    Savepoint = "a savepoint",
    SavepointFails = "a savepoint fails",
    WentBack = "the job goes back to a savepoint",
    StoppedWithSavepoint = "stop with savepoint, without drain",
    Drained = "stop with savepoint and drain",
    StopUnknown = "crash while stopping with a savepoint that is complete",
}

/// How often each race was met.
#[derive(Clone, Debug)]
pub struct Reach(Vec<u64>);

impl Default for Reach {
    fn default() -> Self {
        Self(vec![0; Race::ALL.len()])
    }
}

impl Reach {
    /// It was met.
    pub fn met(&mut self, race: Race) {
        self.0[race as usize] += 1;
    }

    /// It was met if that is so.
    pub fn met_if(&mut self, is_met: bool, race: Race) {
        self.0[race as usize] += u64::from(is_met);
    }

    /// How often it was met.
    pub fn count(&self, race: Race) -> u64 {
        self.0[race as usize]
    }

    /// Adds those of another schedule.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Races that were never met.
    pub fn missing(&self) -> Vec<&'static str> {
        Race::ALL.iter().filter(|&&race| self.count(race) == 0).map(|race| race.name()).collect()
    }
}

/// One attempt's alignment, as far as it was seen.
#[derive(Debug, Default)]
struct Alignment {
    running: Option<CheckpointId>,
    is_capturing: bool,
    over: Option<CheckpointId>,
    barriers: BTreeSet<(ChannelIndex, CheckpointId)>,
    announced: bool,
    ending: BTreeSet<ChannelIndex>,
    closed: BTreeSet<ChannelIndex>,
    triggered: Option<CheckpointId>,
    input: Option<barrier::Input>,
    has_started: bool,
    is_leaving: bool,
    has_ended: bool,
    awaits: bool,
    failed_while_awaiting: bool,
    delivered: Option<CheckpointId>,
    finish_input: Option<finish::Input>,
}

/// What one schedule has shown.
#[derive(Debug, Default)]
pub struct Seen {
    /// The races met.
    pub reach: Reach,
    /// Checkpoints that are under way.
    pub pending: BTreeSet<CheckpointId>,
    /// Checkpoints completed.
    pub completed: u64,
    /// Checkpoints for which records in flight were stored.
    pub captured: BTreeSet<CheckpointId>,
    /// Whether the job is another size than before.
    pub is_rescaled: bool,
    /// Whether a checkpoint has expired.
    pub has_expired: bool,
    /// The last deployment.
    pub deployed: Option<Deployed>,
    /// A digest of what was seen.
    pub digest: u64,
    /// The most tasks deployed.
    pub tasks: usize,
    /// Its clock.
    pub now: Timestamp,
    /// How many readers had been opened when tasks were last left out of a deployment.
    pub readers: Option<u64>,
    /// Whether what is seen is printed.
    pub is_told: bool,
    attempts: BTreeMap<SubtaskId, (AttemptId, Alignment)>,
}

/// Watches this thread's machines.
pub fn observer(seen: &Rc<RefCell<Seen>>, world: &Arc<Mutex<World>>) -> tidegate::probe::Observer {
    let (seen, world) = (seen.clone(), world.clone());
    Box::new(move |attempt: Option<AttemptId>, what: &dyn Any| {
        let mut seen = seen.borrow_mut();
        if let Some(attempt) = attempt {
            if seen.is_told {
                seen.tell(attempt, what);
            }
            if let Some(input) = what.downcast_ref::<barrier::Input>() {
                seen.barrier_input(attempt, *input);
            } else if let Some(output) = what.downcast_ref::<barrier::Output>() {
                seen.barrier_output(attempt, *output);
            } else if let Some(input) = what.downcast_ref::<finish::Input>() {
                seen.finish_input(attempt, input);
            } else if let Some(output) = what.downcast_ref::<finish::Output>() {
                seen.finish_output(attempt, *output);
            }
        } else if let Some(fact) = what.downcast_ref::<Fact>() {
            if let Fact::Completed { checkpoint, .. } = fact {
                world.lock().unwrap_or_else(PoisonError::into_inner).completed(*checkpoint);
            }
            seen.fact(fact);
        } else if let Some(deployed) = what.downcast_ref::<Deployed>() {
            if let Some(restored) = deployed.restored {
                world.lock().unwrap_or_else(PoisonError::into_inner).completed(restored);
            }
            let readers = world.lock().unwrap_or_else(PoisonError::into_inner).readers;
            seen.readers = deployed.left_out.gt(&0).then_some(readers);
            seen.deployment(*deployed);
        } else if what.is::<TriggerHeld>() {
            seen.reach.met(Race::TriggerHeld);
        }
    })
}

impl Seen {
    fn tell(&self, attempt: AttemptId, what: &dyn Any) {
        let told = if let Some(input) = what.downcast_ref::<barrier::Input>() {
            format!("aligning: {input:?}")
        } else if let Some(output) = what.downcast_ref::<barrier::Output>() {
            format!("aligning says {output:?}")
        } else if let Some(input) = what.downcast_ref::<finish::Input>() {
            format!("ending: {input:?}")
        } else if let Some(output) = what.downcast_ref::<finish::Output>() {
            format!("ending says {output:?}")
        } else {
            return;
        };
        let SubtaskId { vertex, index } = attempt.subtask;
        println!("                    {}/{index} {told}", vertex.0);
    }

    fn digest(&mut self, attempt: AttemptId, kind: u64, number: u64) {
        let task = u64::from(attempt.subtask.vertex.0) << 40
            | u64::from(attempt.subtask.index) << 32
            | u64::from(attempt.attempt.0);
        for part in [task, kind, number] {
            self.digest = (self.digest ^ part).wrapping_mul(0x0100_0000_01B3).rotate_left(7);
        }
    }

    fn of(&mut self, attempt: AttemptId) -> &mut Alignment {
        let entry =
            self.attempts.entry(attempt.subtask).or_insert_with(|| (attempt, Alignment::default()));
        if entry.0 != attempt {
            let capturing = entry.1.running.is_some() && entry.1.is_capturing;
            let aligning = entry.1.running.is_some() && !entry.1.is_capturing;
            self.reach.met_if(capturing, Race::RestartWhileCapturing);
            self.reach.met_if(aligning, Race::RestartWhileAligning);
            *entry = (attempt, Alignment::default());
        }
        &mut entry.1
    }

    fn barrier_input(&mut self, attempt: AttemptId, input: barrier::Input) {
        use barrier::Input;
        let mut met = [None; 3];
        let task = self.of(attempt);
        task.input = Some(input);
        let is_over = |task: &Alignment, n| task.over.is_some_and(|over| n <= over);
        match input {
            Input::Barrier { channel, barrier }
            | Input::PriorityBarrier { channel, barrier, .. } => {
                let n = barrier.checkpoint;
                let in_band = matches!(input, Input::Barrier { .. });
                if is_over(task, n) {
                    met[0] = Some(Race::Obsolete);
                } else {
                    met[0] = (in_band && task.is_capturing).then_some(Race::BarrierWhileCapturing);
                    met[1] = (!in_band && task.running.is_none()).then_some(Race::Overtaken);
                    met[2] = (task.triggered == Some(n)).then_some(Race::TriggerAndBarrier);
                    task.running = task.running.max(Some(n));
                    task.announced = false;
                }
                task.barriers.insert((channel, n));
            }
            Input::Announcement { barrier, .. } => {
                if !is_over(task, barrier.checkpoint) {
                    met[0] = task.is_capturing.then_some(Race::AnnouncedWhileCapturing);
                    if task.running.is_none() {
                        met[1] = Some(Race::Announced);
                        task.running = Some(barrier.checkpoint);
                        task.announced = true;
                    }
                }
            }
            Input::FinishNotice { channel, .. } => {
                let own = task.running.is_some_and(|n| task.barriers.contains(&(channel, n)));
                met[0] = Some(match task.running {
                    _ if !task.has_started => Race::BornEnded,
                    Some(_) if own => Race::NoticeAfterBarrier,
                    Some(_) if task.is_capturing => Race::NoticeWhileCapturing,
                    Some(_) => Race::NoticeWhileAligning,
                    None => Race::NoticeBeforeBarrier,
                });
                task.ending.insert(channel);
            }
            Input::EndOfPartition { channel } => {
                if let Some(n) = task.running {
                    let own = task.barriers.contains(&(channel, n));
                    met[0] = Some(if own { Race::BarrierThenEnd } else { Race::EndWhileAligning });
                }
                task.closed.insert(channel);
            }
            Input::Trigger { barrier } => {
                let n = barrier.checkpoint;
                let all_ended = !task.closed.is_empty() && task.ending == task.closed;
                met[0] =
                    Some(if all_ended { Race::TriggerAllEnded } else { Race::TriggerWhileOpen });
                met[1] = (task.running == Some(n)).then_some(Race::TriggerAndBarrier);
                if !is_over(task, n) {
                    task.running = task.running.max(Some(n));
                }
                task.triggered = Some(n);
            }
            Input::Abort { checkpoint } => {
                met[0] = match task.running {
                    Some(n) if n == checkpoint && task.is_capturing => {
                        Some(Race::AbortWhileCapturing)
                    }
                    Some(n) if n == checkpoint => Some(Race::AbortWhileAligning),
                    Some(_) | None if !is_over(task, checkpoint) => Some(Race::AbortBeforeBarrier),
                    Some(_) | None => None,
                };
            }
            Input::Cancel { .. }
            | Input::EndOfData { .. }
            | Input::CaptureReached { .. }
            | Input::Tick
            | Input::Processed { .. }
            | Input::Captured { .. }
            | Input::Close => {}
        }
        for race in met.into_iter().flatten() {
            self.reach.met(race);
        }
    }

    fn barrier_output(&mut self, attempt: AttemptId, output: barrier::Output) {
        use barrier::{AbortReason, Input, Output};
        let now = self.now;
        let task = self.of(attempt);
        let mut met = None;
        let mut number = 0;
        let kind = match output {
            Output::CaptureStart { checkpoint } => {
                number = checkpoint.0;
                task.is_capturing = true;
                met = match task.input {
                    Some(Input::EndOfPartition { .. } | Input::FinishNotice { .. }) => {
                        Some(Race::EndSwitches)
                    }
                    Some(Input::Tick) if task.announced => Some(Race::TimedOutOnlyAnnounced),
                    Some(Input::Tick) => Some(Race::TimedOut),
                    Some(Input::Barrier { .. }) => Some(Race::LateBarrierSwitches),
                    Some(_) | None => None,
                };
                1
            }
            Output::Snapshot { barrier } => {
                number = barrier.checkpoint.0;
                let is_late = barrier
                    .options
                    .timeout()
                    .is_some_and(|timeout| barrier.timestamp + timeout < now);
                met = match task.input {
                    Some(Input::EndOfPartition { .. }) if !task.is_capturing => {
                        Some(Race::EndCompletes)
                    }
                    Some(Input::Barrier { .. }) if is_late && !task.is_capturing => {
                        Some(Race::LastBarrierLate)
                    }
                    Some(_) | None => None,
                };
                2
            }
            Output::Completed { checkpoint } => {
                number = checkpoint.0;
                (task.running, task.is_capturing) = (None, false);
                task.over = task.over.max(Some(checkpoint));
                3
            }
            Output::Abort { checkpoint, reason } => {
                number = checkpoint.0;
                met = (reason == AbortReason::Subsumed).then_some(Race::SubsumedAtTask);
                if task.running.is_some_and(|running| running <= checkpoint) {
                    (task.running, task.is_capturing) = (None, false);
                }
                task.over = task.over.max(Some(checkpoint));
                4
            }
            Output::Decline { checkpoint } => {
                number = checkpoint.0;
                5
            }
            Output::CaptureStop { .. } | Output::CaptureAbort { .. } => {
                task.is_capturing = false;
                6
            }
            Output::Block { channel } | Output::Resume { channel } => {
                number = u64::from(channel.0);
                7
            }
            Output::CaptureUntil { .. } => 8,
            Output::CaptureLoaded { .. } => 9,
        };
        if let Some(race) = met {
            self.reach.met(race);
        }
        self.digest(attempt, kind, number);
    }

    fn finish_input(&mut self, attempt: AttemptId, input: &finish::Input) {
        use finish::Input;
        let is_pending = !self.pending.is_empty();
        let task = self.of(attempt);
        task.finish_input = Some(input.clone());
        let mut met = None;
        match input {
            Input::Start => task.has_started = true,
            Input::SourceEnded => met = is_pending.then_some(Race::SourceEndsWhilePending),
            Input::Trigger { barrier } => {
                let is_stop =
                    matches!(barrier.options.kind(), CheckpointKind::StopWithSavepoint { .. });
                met = (is_stop && task.has_ended).then_some(Race::StopMeetsEnd);
            }
            Input::SnapshotTaken { .. } => {
                met = task.is_leaving.then_some(Race::SnapshotWhileLeaving);
            }
            Input::Aborted { latest, .. } => {
                task.failed_while_awaiting |= task.awaits;
                met = (*latest > task.delivered).then_some(Race::AbortRepairsNotice);
                task.delivered = task.delivered.max(*latest);
            }
            Input::Complete { checkpoint } => {
                task.delivered = task.delivered.max(Some(*checkpoint));
            }
            Input::Granted => {
                met =
                    Some(if is_pending { Race::GrantedWhilePending } else { Race::PermitGranted });
            }
            Input::Hold { pending } => met = (!pending.is_empty()).then_some(Race::PermitHeld),
            Input::EndOfData { .. }
            | Input::EndOfPartition { .. }
            | Input::StepDone
            | Input::EndOfDataAcked { .. }
            | Input::SnapshotOver { .. }
            | Input::FinalizePending { .. }
            | Input::Finalized { .. }
            | Input::FinalizeFailed { .. }
            | Input::Flushed
            | Input::Cancel => {}
        }
        if let Some(race) = met {
            self.reach.met(race);
        }
    }

    fn finish_output(&mut self, attempt: AttemptId, output: finish::Output) {
        use finish::{Failure, Output, Step};
        let task = self.of(attempt);
        let mut met = None;
        let mut kind = 20;
        match output {
            Output::Run(Step::EmitMaxWatermark) => {
                let at_start = matches!(task.finish_input, Some(finish::Input::Start));
                met = at_start.then_some(Race::OperatorsFinishedRestored);
            }
            Output::BroadcastEndOfData { .. } => {
                task.has_ended = true;
                let is_held = matches!(task.finish_input, Some(finish::Input::Complete { .. }));
                met = is_held.then_some(Race::EndHeld);
            }
            Output::AwaitsCheckpoint(awaits) => {
                task.awaits = awaits;
                let is_free = !awaits && task.failed_while_awaiting;
                met = if is_free { Some(Race::FinalCheckpointFails) } else { None };
                met = met.or(awaits.then_some(Race::FinalCheckpoint));
                kind = 21;
            }
            Output::Flush => task.is_leaving = true,
            Output::EmitEndOfPartition => kind = 22,
            Output::Fail { cause: Failure::Savepoint { .. } } => met = Some(Race::StopFails),
            Output::Run(_)
            | Output::AckEndOfData { .. }
            | Output::Take { .. }
            | Output::DeclineClosing { .. }
            | Output::NotifyComplete { .. }
            | Output::Abort { .. }
            | Output::AskPermit { .. }
            | Output::CloseMailbox
            | Output::CloseOperators
            | Output::Fail { .. } => {}
        }
        if let Some(race) = met {
            self.reach.met(race);
        }
        self.digest(attempt, kind, 0);
    }

    fn fact(&mut self, fact: &Fact) {
        match fact {
            Fact::Triggered { checkpoint, .. } => {
                self.pending.insert(*checkpoint);
                self.reach.met_if(self.pending.len() > 1, Race::ConcurrentCheckpoints);
            }
            Fact::Completed { checkpoint, .. } => {
                self.completed += 1;
                self.pending.remove(checkpoint);
            }
            Fact::Failed { checkpoint, reason, .. } => {
                if let Some(checkpoint) = checkpoint {
                    self.pending.remove(checkpoint);
                }
                match reason {
                    FailureReason::Expired => {
                        self.has_expired = true;
                        self.reach.met(Race::Expired);
                    }
                    FailureReason::Declined => self.reach.met(Race::Declined),
                    _ => {}
                }
            }
            Fact::LateAck { .. } => self.reach.met(Race::LateAck),
            Fact::Acknowledged { .. } => {}
        }
    }

    fn deployment(&mut self, deployed: Deployed) {
        let is_again = self.deployed.is_some();
        self.reach.met_if(is_again && deployed.restored.is_none(), Race::RestartWithoutCheckpoint);
        self.reach.met_if(deployed.left_out > 0, Race::LeftOut);
        if let Some(restored) = deployed.restored {
            let has_captured = self.captured.contains(&restored);
            self.reach.met_if(has_captured, Race::InFlightRestored);
            self.reach.met_if(has_captured && self.is_rescaled, Race::InFlightRescaled);
            self.reach.met_if(self.is_rescaled, Race::Rescaled);
        }
        self.is_rescaled = false;
        self.tasks = self.tasks.max(deployed.tasks + deployed.left_out);
        self.deployed = Some(deployed);
    }

    /// The current attempt of a subtask, if it was seen.
    pub fn attempt(&self, subtask: SubtaskId) -> Option<AttemptId> {
        self.attempts.get(&subtask).map(|(attempt, _)| *attempt)
    }

    /// A process has died: what it had is gone.
    pub fn crashed(&mut self) {
        self.attempts.clear();
        self.pending.clear();
        self.has_expired = false;
    }
}
