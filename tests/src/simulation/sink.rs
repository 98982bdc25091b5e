//! A sink in two phases whose output survives every crash: what is prepared lies in the checkpoint, a commit is idempotent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::clock::Timestamp;
use tidegate::error::{Error, ErrorKind, Result};
use tidegate::id::CheckpointId;
use tidegate::sink::{Committable, Readiness, Sink, Writer, WriterContext};

use super::Record;
use super::world::{Transaction, World};

/// One sink; a slow one is often busy.
#[derive(Clone, Debug)]
pub struct TwoPhase<const SLOW: bool> {
    /// Where it commits to.
    pub world: Arc<Mutex<World>>,
    /// Which sink.
    pub sink: usize,
    /// How long a slow one is busy.
    pub busy_nanos: u64,
}

/// Writes one subtask's records.
#[derive(Debug)]
pub struct TwoPhaseWriter<const SLOW: bool> {
    sink: TwoPhase<SLOW>,
    subtask: u32,
    attempt: u32,
    process: u64,
    restored: Option<CheckpointId>,
    written: Vec<Record>,
    prepared: Vec<(CheckpointId, Transaction)>,
    /// Records since it was busy.
    since: u64,
    busy_until: Timestamp,
}

impl<const SLOW: bool> TwoPhase<SLOW> {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const SLOW: bool> Sink<Record> for TwoPhase<SLOW> {
    type Writer = TwoPhaseWriter<SLOW>;

    const RETRACTS: bool = true;

    fn retract(&self, after: CheckpointId) -> Result<()> {
        self.world().retract(self.sink, after);
        Ok(())
    }

    fn open(
        &self,
        prepared: Vec<Committable>,
        context: WriterContext<'_>,
    ) -> Result<TwoPhaseWriter<SLOW>> {
        let mut world = self.world();
        for committable in prepared {
            let transaction = Transaction::decode(&committable.0);
            world.commit(self.sink, &transaction);
        }
        let process = world.process;
        drop(world);
        Ok(TwoPhaseWriter {
            sink: self.clone(),
            subtask: context.subtask,
            attempt: context.attempt.0,
            process,
            restored: context.restored,
            written: Vec::new(),
            prepared: Vec::new(),
            since: 0,
            busy_until: Timestamp::ZERO,
        })
    }
}

impl<const SLOW: bool> Writer<Record> for TwoPhaseWriter<SLOW> {
    const MAY_BE_BUSY: bool = SLOW;
    const COMMITS: bool = true;

    fn write(&mut self, record: Record) -> Result<()> {
        self.since += 1;
        self.written.push(record);
        Ok(())
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        if self.since >= 2 {
            self.since = 0;
            self.busy_until = Timestamp::from_nanos(now.as_nanos() + self.sink.busy_nanos);
        }
        if self.busy_until > now { Readiness::Busy(self.busy_until) } else { Readiness::Ready }
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        if self.sink.world().takes_prepare_fault() {
            return Err(Error::new(ErrorKind::Io, "injected: nothing can be prepared"));
        }
        if self.written.is_empty() {
            return Ok(Vec::new());
        }
        let transaction = Transaction {
            process: self.process,
            attempt: self.attempt,
            subtask: self.subtask,
            checkpoint: checkpoint.0,
            records: std::mem::take(&mut self.written),
        };
        let committable = Committable(transaction.encode());
        self.prepared.push((checkpoint, transaction));
        Ok(vec![committable])
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let mut world = self.sink.world();
        world.told_complete(checkpoint, self.restored);
        let (due, later) =
            std::mem::take(&mut self.prepared).into_iter().partition(|(n, _)| *n <= checkpoint);
        self.prepared = later;
        let due: Vec<(CheckpointId, Transaction)> = due;
        let fails = world.takes_commit_fault();
        for (at, (_, transaction)) in due.iter().enumerate() {
            if fails && at > 0 {
                break;
            }
            world.commit(self.sink.sink, transaction);
        }
        if fails {
            return Err(Error::new(ErrorKind::Io, "injected: the commit was cut short"));
        }
        Ok(())
    }
}
