//! A job: streams written down, checked, and run here, beside here, or step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Mode};
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::options::CheckpointMode;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::logical::execution_graph;
use crate::graph::{ExecutionGraph, Graph, Plan, Stream};
use crate::id::CheckpointId;
use crate::operator::FromSource;
#[cfg(feature = "rest")]
use crate::rest::{RestOptions, RestServer, Serving};
use crate::runtime::{
    Begin, ClusterOptions, JobEndpoint, JobMetrics, JobState, JobStatus, Parts, Request,
    RuntimeOptions, SavepointStop, Shared, Wish, begin,
};
use crate::source::{Source, Split};
use crate::state::directory::DirectoryStore;
use crate::state::memory::MemoryStore;
use crate::state::snapshots::{Owner, Snapshots};
use crate::state::store::SnapshotStore;
use crate::topology;

/// A job while it is written down.
///
/// ```
/// use tidegate::{Job, sink, source};
///
/// let job = Job::new("evens");
/// let (sum, total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
/// job.source("numbers", source::range(0..10)).filter(|n| n % 2 == 0).sink("sum", sum);
/// job.run()?;
/// assert_eq!(total.take().iter().sum::<u64>(), 20);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Debug)]
pub struct Job {
    name: String,
    graph: Graph,
    config: Config,
    wish: Wish,
}

impl Job {
    /// A job with the default options.
    pub fn new(name: &str) -> Self {
        Self::with_config(name, Config::default())
    }

    /// A job with options.
    pub fn with_config(name: &str, config: Config) -> Self {
        Self { name: name.to_owned(), graph: Graph::default(), config, wish: Wish::Fresh }
    }

    /// The options, to be changed before the job runs.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// Whether to go on from the last completed checkpoint in `checkpoint.dir`, if there is one. Without it, a directory
    /// that holds checkpoints is an error.
    pub fn resume(&mut self, resume: bool) -> &mut Self {
        self.wish = if resume { Wish::Latest } else { Wish::Fresh };
        self
    }

    /// Goes back to that checkpoint of `checkpoint.dir` instead of going on from the last one.
    ///
    /// What sinks have committed since is taken back before the job starts (parts of [`exactly_once_files`] go to `.superseded`),
    /// and the checkpoints since are removed; a sink that can't take back refuses, and then nothing is changed.
    ///
    /// [`exactly_once_files`]: crate::sink::exactly_once_files
    pub fn restore_from(&mut self, checkpoint: CheckpointId) -> &mut Self {
        self.wish = Wish::Checkpoint(checkpoint);
        self
    }

    /// Begins from the savepoint in `folder`, which is what [`JobHandle::savepoint`] returned or was moved from there. It is only
    /// read. A savepoint of a drained job restores as ended: what it had prepared is committed, and the job ends.
    ///
    /// As with [`restore_from`](Job::restore_from), what was committed since and checkpoints since are taken back. Until the
    /// first checkpoint of the new run is complete, a restart of the program has to name the savepoint again.
    pub fn restore_from_savepoint(&mut self, folder: impl Into<PathBuf>) -> &mut Self {
        self.wish = Wish::Savepoint(folder.into());
        self
    }

    /// A stream of what `source` reads. The name is unique in the job; positions in checkpoints are filed under it.
    pub fn source<S: Source>(&self, name: &str, source: S) -> Stream<S::Out, FromSource<S>> {
        self.graph.source(name, source)
    }

    /// What the job will run as.
    ///
    /// # Errors
    /// `Config`, as [`build`](Job::build).
    pub fn plan(&self) -> Result<Plan> {
        Ok(Plan::new(&self.execution_graph()?))
    }

    /// Checks everything that can be checked before a thread starts: names, parallelism, options, streams that end
    /// nowhere, sinks' outputs.
    ///
    /// # Errors
    /// `Config` naming what is wrong; `Io` if an output can't be used.
    pub fn build(&self) -> Result<()> {
        self.checked().map(drop)
    }

    /// Runs the job here, to its end.
    ///
    /// # Errors
    /// What is wrong with the job, or why it failed for good.
    pub fn run(self) -> Result<JobStatus> {
        self.spawn()?.join()
    }

    /// Runs the job on threads of its own.
    ///
    /// # Errors
    /// What is wrong with the job; nothing was started then.
    pub fn spawn(self) -> Result<JobHandle> {
        let (options, store) = (self.runtime_options()?, self.store());
        #[cfg(feature = "rest")]
        let (config, rest) = (self.config.clone(), RestOptions::from_config(&self.config)?);
        let mut started = self.start(&options, store)?;
        let endpoint = started.endpoint();
        #[cfg(feature = "rest")]
        let served = match rest {
            Some(rest) => {
                let serving = Serving::open(endpoint.clone(), config.clone(), rest)?;
                Some(started.spawn_served(&options, serving)?)
            }
            None => {
                started.spawn(&options)?;
                None
            }
        };
        #[cfg(not(feature = "rest"))]
        started.spawn(&options)?;
        Ok(JobHandle {
            parts: match started {
                Started::Ended(_) => None,
                Started::Ready(parts) => Some(*parts),
            },
            shared: endpoint.shared().clone(),
            endpoint,
            #[cfg(feature = "rest")]
            config,
            #[cfg(feature = "rest")]
            served,
        })
    }

    /// The job to be stepped by the caller's thread: no thread is started.
    ///
    /// # Errors
    /// What is wrong with the job.
    pub fn stepper(self) -> Result<JobStepper> {
        let (options, store) = (self.runtime_options()?, self.store());
        #[cfg(feature = "rest")]
        let config = self.config.clone();
        let (parts, endpoint, outcome) = match self.start(&options, store)? {
            Started::Ended(endpoint) => (None, endpoint, Some(Ok(()))),
            Started::Ready(parts) => {
                let endpoint = parts.endpoint();
                (Some(*parts), endpoint, None)
            }
        };
        let shared = endpoint.shared().clone();
        Ok(JobStepper {
            parts,
            shared,
            outcome,
            endpoint,
            #[cfg(feature = "rest")]
            config,
        })
    }

    /// The job in pieces, for the simulator; `None` if the store says that it has ended. `tune` changes options that a
    /// configuration would refuse.
    ///
    /// # Errors
    /// What is wrong with the job.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn simulate(
        self,
        store: Arc<dyn SnapshotStore>,
        tune: impl FnOnce(&mut RuntimeOptions),
    ) -> Result<Option<crate::runtime::simulation::Simulation>> {
        let mut options = self.runtime_options()?;
        tune(&mut options);
        match self.start(&options, store)? {
            Started::Ended(_) => Ok(None),
            Started::Ready(parts) => Ok(crate::runtime::simulation::Simulation::new(*parts)),
        }
    }

    fn execution_graph(&self) -> Result<ExecutionGraph> {
        if self.name.is_empty() || self.name.len() > 200 {
            return Err(Error::config("a job's name has 1 to 200 characters"));
        }
        execution_graph(&self.graph.stages(), self.parallelism(), self.config.parallelism.max)
    }

    fn parallelism(&self) -> u32 {
        self.config
            .parallelism
            .default
            .map_or_else(|| self.workers() as u32, std::num::NonZeroU32::get)
    }

    fn workers(&self) -> usize {
        let taskmanager = &self.config.taskmanager;
        match (taskmanager.list.0.as_slice(), taskmanager.slots) {
            ([], Some(slots)) => slots.get() as usize,
            ([], None) => topology::allowed_cpus().len().max(1),
            (list, _) => list.iter().map(|spec| spec.slots as usize).sum(),
        }
    }

    fn is_checkpointed(&self) -> bool {
        self.config.checkpoint.interval.is_some() || self.config.checkpoint.dir.is_some()
    }

    fn checked(&self) -> Result<ExecutionGraph> {
        self.config.validate().map_err(|error| Error::config(error.to_string()))?;
        #[cfg(not(feature = "rest"))]
        if self.config.rest.address.is_some() {
            let text = "option 'rest.address' needs the feature `rest`";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.coordinator_config().check()?;
        ClusterOptions::new(&self.config)?;
        let graph = self.execution_graph()?;
        for (_, check) in graph.vertices.iter().flat_map(|vertex| &vertex.checks) {
            check()?;
        }
        Ok(graph)
    }

    fn coordinator_config(&self) -> CoordinatorConfig {
        let checkpoint = &self.config.checkpoint;
        CoordinatorConfig {
            mode: match checkpoint.mode {
                Mode::AtLeastOnce => CheckpointMode::AtLeastOnce,
                Mode::ExactlyOnce if checkpoint.unaligned_enabled => {
                    CheckpointMode::ExactlyOnceUnaligned {
                        aligned_timeout: Some(checkpoint.aligned_timeout),
                    }
                }
                Mode::ExactlyOnce => CheckpointMode::ExactlyOnce,
            },
            interval: checkpoint.interval,
            timeout: checkpoint.timeout,
            min_pause: checkpoint.min_pause,
            max_concurrent: checkpoint.max_concurrent as usize,
            tolerable_failed: checkpoint.tolerable_failed,
            num_retained: checkpoint.num_retained as usize,
            ..CoordinatorConfig::default()
        }
    }

    fn runtime_options(&self) -> Result<RuntimeOptions> {
        let cluster = ClusterOptions::new(&self.config)?;
        Ok(RuntimeOptions {
            workers: cluster.workers(),
            cluster,
            cores: self.config.taskmanager.cores.0.clone(),
            idle: self.config.idle.strategy,
            checkpointed: self.is_checkpointed(),
            coordinator: self.coordinator_config(),
            restart_strategy: self.config.restart_strategy.clone(),
            drain_hold: self.config.checkpoint.drain_hold,
            unaligned_any_edge: self.config.checkpoint.unaligned_any_edge,
            segment_bytes: self.config.buffer.segment_bytes,
            buffers_per_channel: self.config.buffer.per_channel,
            record_bytes_max: self.config.record.max_bytes,
            emission_bytes_max: self.config.emission.max_bytes,
            buffer_timeout: self.config.buffer.timeout,
            latency_interval: LATENCY_INTERVAL,
            incremental: self.config.checkpoint.incremental,
            retain_on_cancel: self.config.checkpoint.retain_on_cancel,
        })
    }

    fn store(&self) -> Arc<dyn SnapshotStore> {
        match &self.config.checkpoint.dir {
            Some(dir) => Arc::new(DirectoryStore::new(dir)),
            None => Arc::new(MemoryStore::new()),
        }
    }

    fn start(self, options: &RuntimeOptions, store: Arc<dyn SnapshotStore>) -> Result<Started> {
        let graph = self.checked()?;
        let owner = Owner { job: self.name.clone(), fingerprint: graph.fingerprint() };
        let (snapshots, survey) = Snapshots::own(store, &owner)?;
        let Some(begin) = begin(&snapshots, survey, &self.wish, &graph)? else {
            return Ok(Started::Ended(JobEndpoint::already_ended(&self.name, &graph)));
        };
        let mut splits: BTreeMap<String, Vec<Split>> = BTreeMap::new();
        if begin == Begin::Fresh {
            for vertex in &graph.vertices {
                for (name, splits_of) in &vertex.sources {
                    splits.insert(name.clone(), splits_of(vertex.parallelism)?);
                }
            }
        }
        let parts = Parts::new(&self.name, graph, options.clone(), snapshots, splits, begin)?;
        Ok(Started::Ready(Box::new(parts)))
    }
}

/// How often a source sends a latency marker.
const LATENCY_INTERVAL: Duration = Duration::from_millis(10);

enum Started {
    /// The checkpoint directory says that the job has ended.
    Ended(JobEndpoint),
    Ready(Box<Parts>),
}

impl Started {
    fn endpoint(&self) -> JobEndpoint {
        match self {
            Self::Ended(endpoint) => endpoint.clone(),
            Self::Ready(parts) => parts.endpoint(),
        }
    }

    /// Starts the threads, if the job has not ended.
    fn spawn(&mut self, options: &RuntimeOptions) -> Result<()> {
        match self {
            Self::Ended(_) => Ok(()),
            Self::Ready(parts) => parts.spawn(options, None).map(drop),
        }
    }

    /// The same, and serves the job.
    #[cfg(feature = "rest")]
    fn spawn_served(&mut self, options: &RuntimeOptions, serving: Serving) -> Result<RestServer> {
        match self {
            Self::Ended(_) => serving.alone(),
            Self::Ready(parts) => serving.on_control(|host| parts.spawn(options, Some(host))),
        }
    }
}

/// A running job. Dropping it cancels the job without waiting.
#[derive(Debug)]
pub struct JobHandle {
    parts: Option<Parts>,
    shared: Arc<Shared>,
    endpoint: JobEndpoint,
    #[cfg(feature = "rest")]
    config: Config,
    /// The server that `rest.address` asks for, on the control thread. It ends with the handle.
    #[cfg(feature = "rest")]
    served: Option<RestServer>,
}

impl JobHandle {
    /// Serves the job's REST interface until the server is dropped; see [`rest`](crate::rest).
    ///
    /// # Errors
    /// `Config` if the options ask for what is not safe; `Io` if the address can't be listened on.
    #[cfg(feature = "rest")]
    pub fn serve(&self, options: RestOptions) -> Result<RestServer> {
        Serving::open(self.endpoint.clone(), self.config.clone(), options)?.alone()
    }

    /// Where the job is served, if `rest.address` asked for it. With port 0 the system has chosen one.
    #[cfg(feature = "rest")]
    pub fn rest_address(&self) -> Option<std::net::SocketAddr> {
        self.served.as_ref().map(RestServer::address)
    }

    /// Waits for the job's end.
    ///
    /// # Errors
    /// Why the job failed, or that it was cancelled.
    pub fn join(mut self) -> Result<JobStatus> {
        if let Some(mut parts) = self.parts.take() {
            parts.join()?;
        }
        Ok(self.shared.status())
    }

    /// The job's status at this moment.
    pub fn status(&self) -> JobStatus {
        self.shared.status()
    }

    /// The counters of its tasks at this moment: of the current attempt, which begins at zero.
    pub fn metrics(&self) -> JobMetrics {
        self.shared.metrics()
    }

    /// Where the job is.
    pub fn state(&self) -> JobState {
        self.shared.state()
    }

    /// The job as other threads reach it.
    pub fn endpoint(&self) -> &JobEndpoint {
        &self.endpoint
    }

    /// Takes a checkpoint and waits until it is complete.
    ///
    /// # Errors
    /// Why there is none.
    pub fn checkpoint(&self) -> Result<CheckpointId> {
        self.ask(Request::Checkpoint)
    }

    /// Takes a savepoint into a folder of its own in `dir`, `savepoint-<id>`, and waits until it is complete. Returns the folder.
    ///
    /// It is whole in itself: it can be moved, and it stays until its owner removes it. The job goes on, and nothing is committed
    /// by it (FLIP-147 and Flink's savepoints: not counted, not notified).
    ///
    /// # Errors
    /// Why there is none.
    pub fn savepoint(&self, dir: impl AsRef<Path>) -> Result<PathBuf> {
        let dir = dir.as_ref().to_owned();
        self.ask(|promise| Request::Savepoint(dir, promise))
    }

    /// Stops the job with a savepoint in `dir`, and waits for the outcome. No other checkpoint is taken meanwhile.
    ///
    /// With `drain` the job ends as if its sources were exhausted: all windows fire and all operators finish, so that a job which
    /// is meant to read more must be stopped without. The store then says that the job has ended, or where to go on from.
    ///
    /// # Errors
    /// The job doesn't run, or takes no checkpoints. That there is no savepoint is an outcome, not an error.
    pub fn stop_with_savepoint(&self, dir: impl AsRef<Path>, drain: bool) -> Result<SavepointStop> {
        let dir = dir.as_ref().to_owned();
        self.ask(|promise| Request::StopWithSavepoint(dir, drain, promise))
    }

    /// Asks the control thread, and waits for the answer.
    fn ask<T>(
        &self,
        request: impl FnOnce(crossbeam::channel::Sender<Result<T>>) -> Request,
    ) -> Result<T> {
        let over = || Error::new(ErrorKind::Checkpoint, "the job is over");
        let parts = self.parts.as_ref().ok_or_else(over)?;
        let (promise, outcome) = crossbeam::channel::bounded(1);
        parts.request(request(promise));
        loop {
            match outcome.recv_timeout(LOOK_AGAIN) {
                Ok(outcome) => return outcome,
                Err(crossbeam::channel::RecvTimeoutError::Timeout) => {
                    if self.state().is_over() {
                        return outcome.try_recv().unwrap_or_else(|_| Err(over()));
                    }
                }
                Err(crossbeam::channel::RecvTimeoutError::Disconnected) => return Err(over()),
            }
        }
    }

    /// Waits until one more checkpoint has completed; `false` if none has in that time, or the job is over.
    pub fn wait_checkpoint(&self, timeout: Duration) -> bool {
        let before = self.shared.status().checkpoints_completed;
        let mut completed = false;
        self.shared.wait(timeout, |state, count| {
            completed = count > before;
            completed || state.is_over()
        });
        completed
    }

    /// Waits until the status has changed more than `seen` times (0: at all) or the time is over, and says how often it has. Counters
    /// that go up with records are no changes.
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        self.shared.wait_change(seen, timeout)
    }

    /// Lets the sources end where they are, takes a last checkpoint and waits for the end, at most until the deadline. Then the
    /// job is cancelled; what doesn't return from user code is left behind.
    ///
    /// # Errors
    /// `Stuck`, naming the operator that didn't return; `Cancelled` if the job was only slow; or why the job failed.
    pub fn stop(mut self, deadline: Duration) -> Result<JobStatus> {
        let Some(mut parts) = self.parts.take() else { return Ok(self.shared.status()) };
        parts.request(Request::Stop);
        if self.shared.wait(deadline, |state, _| state.is_over()) {
            parts.join()?;
            return Ok(self.shared.status());
        }
        self.force(parts)
    }

    /// Ends the job at once. Checkpoints stay; what isn't committed is not.
    ///
    /// # Errors
    /// `Stuck`, naming the operator that didn't return; `Cancelled` otherwise.
    pub fn cancel(mut self) -> Result<JobStatus> {
        let Some(parts) = self.parts.take() else { return Ok(self.shared.status()) };
        self.force(parts)
    }

    fn force(&self, mut parts: Parts) -> Result<JobStatus> {
        parts.request(Request::Cancel);
        if self.shared.wait(CANCEL_GRACE, |state, _| state.is_over()) {
            parts.join()?;
            return Ok(self.shared.status());
        }
        let stuck = parts.whereabouts();
        parts.detach();
        let mut error = Error::new(ErrorKind::Stuck, "did not return by the deadline; left behind");
        if let Some((name, subtask)) = stuck.first() {
            error = error.in_operator(name).in_subtask(*subtask);
        }
        Err(error)
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.request(Request::Cancel);
        }
    }
}

/// How often a waiting call looks whether the job is over.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a cancelled job may take to return from user code.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// A job that its host steps.
#[derive(Debug)]
pub struct JobStepper {
    parts: Option<Parts>,
    shared: Arc<Shared>,
    outcome: Option<Result<()>>,
    endpoint: JobEndpoint,
    #[cfg(feature = "rest")]
    config: Config,
}

impl JobStepper {
    /// Serves the job's REST interface until the server is dropped. What only control knows is answered while the job is
    /// stepped.
    ///
    /// # Errors
    /// As for [`JobHandle::serve`].
    #[cfg(feature = "rest")]
    pub fn serve(&self, options: RestOptions) -> Result<RestServer> {
        Serving::open(self.endpoint.clone(), self.config.clone(), options)?.alone()
    }

    /// The job as other threads reach it.
    pub fn endpoint(&self) -> &JobEndpoint {
        &self.endpoint
    }

    /// Does a round of all tasks and of control. `true` while the job goes on.
    ///
    /// # Errors
    /// Why the job failed.
    pub fn step(&mut self) -> Result<bool> {
        if let Some(outcome) = self.outcome.take() {
            self.parts = None;
            return outcome.map(|()| false);
        }
        let Some(parts) = &mut self.parts else { return Ok(false) };
        match parts.step() {
            None => Ok(true),
            Some(outcome) => {
                self.parts = None;
                outcome.map(|()| false)
            }
        }
    }

    /// The job's status at this moment.
    pub fn status(&self) -> JobStatus {
        self.shared.status()
    }
}
