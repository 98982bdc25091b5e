//! Which races the schedules have met: a run that has not seen one of them has proved nothing about it.

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
    CrossingUpdates = "updates of one key cross",
    EchoSuppressed = "a notice is told to others and not to its sender",
    TwoJobsConflict = "two job masters want different things of one node",
    BlocklistMessageLost = "a blocklist message is lost",
    BlocklistMessageDoubled = "a blocklist message is doubled",
    StaleTerm = "a message of an old term is dropped",
    RemovedWhileApart = "an item is removed while a job master that has it is not connected",
    RemovalAgainstReconnect = "such a job master comes back with it",
    BlockDuringOffer = "a slot is offered by a task manager that was blocked meanwhile",
    DuplicateOfferBlocked = "a slot in use is offered again by a blocked task manager",
    FinishDuringEvacuation = "a task finishes while it is to be moved",
    CheckpointDuringEvacuation = "a checkpoint completes while tasks are to be moved",
    CheckpointAbortedByMove = "a move aborts a checkpoint",
    MovedGracefully = "a task is moved before the grace is over",
    MovedWhenGraceOver = "a task is moved when the grace is over",
    MovedWithoutGrace = "a task is moved at once",
    ItemEndsDuringGrace = "an item ends while tasks are to be moved",
    NoCapacity = "there are not enough slots",
    EvacuationStuck = "tasks stay because there is no room",
    SaysNoResources = "a job says that there are no resources",
    ClusterLostBeforeSync = "the resource manager is lost between add and sync",
    ClusterFailsOver = "a new resource manager takes over",
    LostDuringEvacuation = "a task manager is lost while tasks are to be moved from it",
    RegistersAgain = "a task manager registers again before its loss was noticed",
    AcceptedAfterFreed = "a slot is accepted that was freed meanwhile",
    DeployedIntoNothing = "an attempt is sent to a slot that is gone",
    MarkedWhileRunning = "a mark leaves a running task alone",
    FreedOnBlocked = "a slot that becomes free on a blocked task manager is given back",
    Upgraded = "a mark becomes an order to evacuate",
    TakenBackByCap = "a strategy's item is taken back since too much is blocked",
    RefusedByCap = "a strategy's item is refused since too much is blocked",
    WorkerRequested = "the driver is asked for a task manager",
    WorkerReleased = "an idle task manager is ended",
    LaunchFailed = "the driver can't start a task manager",
    PendingOnBlocked = "a grant is under way to a task manager that is blocked",
    LeftOut = "finished tasks are left out of a restart",
    FinishedWhileRestarting = "a checkpoint completes while its tasks restart",
    TombstoneForgotten = "a tombstone is forgotten",
    JobFinished = "a job finishes",
    AllRunning = "all tasks of a job run at the end",
    GivenUp = "a restart strategy gives up",
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
    /// A race was met.
    pub fn meet(&mut self, race: Race) {
        self.0[race as usize] += 1;
    }

    /// How often a race was met.
    pub fn count(&self, race: Race) -> u64 {
        self.0[race as usize]
    }

    /// Adds another schedule's.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    /// Those that were never met.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = Race::ALL.iter().filter(|race| self.count(**race) == 0);
        missing.map(|race| race.name()).collect()
    }
}
