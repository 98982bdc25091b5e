//! The three parts of a running job, put together: on threads of their own, or stepped by one.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::clock::Clock;
use super::cluster::ClusterOptions;
use super::control::{Control, ControlEvent, ControlParts};
use super::control_loop::{ControlHost, ControlLoop, Nursery, Threads, no_thread};
use super::control_queue::{ControlReceiver, ControlSender, control_queue};
use super::crew::{Crew, Newborn, Roll};
use super::endpoint::JobEndpoint;
use super::request::Request;
use super::snapshot_io::{IoRequest, SnapshotIo};
use super::starting::Begin;
use super::status::Shared;
use super::worker::Worker;
use crate::config::{IdleStrategy, RestartStrategy};
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{ExecutionGraph, Plan};
use crate::source::Split;
use crate::state::snapshots::Snapshots;
use crate::topology;

/// How a job is run.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// How many workers.
    pub workers: usize,
    /// The task managers they belong to, and the control plane over those.
    pub cluster: ClusterOptions,
    /// The CPUs they are pinned to, in turn; none: all that are allowed.
    pub cores: Vec<usize>,
    /// What a worker without work does.
    pub idle: IdleStrategy,
    /// Whether checkpoints are taken.
    pub checkpointed: bool,
    /// The coordinator's options.
    pub coordinator: CoordinatorConfig,
    /// What happens after a failure.
    pub restart_strategy: RestartStrategy,
    /// Whether a producer stays until its consumers have taken its end of data.
    pub drain_hold: bool,
    /// Whether barriers may overtake on all edges.
    pub unaligned_any_edge: bool,
    /// The size of a buffer.
    pub segment_bytes: usize,
    /// Buffers of a channel.
    pub buffers_per_channel: u32,
    /// The largest record.
    pub record_bytes_max: usize,
    /// The largest emission beyond what is free.
    pub emission_bytes_max: usize,
    /// After this time a buffer is sent although it is not full.
    pub buffer_timeout: Duration,
    /// How often sources send latency markers.
    pub latency_interval: Duration,
    /// Whether a checkpoint writes only what has changed of keyed state since the last.
    pub incremental: bool,
    /// Whether checkpoints stay when the job is cancelled.
    pub retain_on_cancel: bool,
}

/// A job on its threads, or ready to be stepped.
pub struct Parts {
    clock: Clock,
    control: ControlSender,
    io: Sender<IoRequest>,
    roll: Roll,
    /// The vertices' names. Not the graph: sources and sinks in it may be ends of channels, and who holds the other end learns
    /// that the job is over when they are gone.
    names: Vec<Arc<str>>,
    shared: Arc<Shared>,
    endpoint: JobEndpoint,
    run: Run,
}

enum Run {
    /// Put together.
    Ready(Box<Ready>),
    /// Stepped by the host.
    Stepped(Box<Stepped>),
    /// On threads.
    Threads {
        outcome: Receiver<Result<()>>,
        /// `None` if who hosts it ends it.
        control: Option<JoinHandle<()>>,
        io: JoinHandle<()>,
        workers: Threads,
    },
    /// Neither any more.
    Over,
}

struct Ready {
    control: Control,
    events: ControlReceiver,
    io: SnapshotIo,
    requests: Receiver<IoRequest>,
    born: Receiver<Newborn>,
}

struct Stepped {
    control: Control,
    events: ControlReceiver,
    io: SnapshotIo,
    requests: Receiver<IoRequest>,
    born: Receiver<Newborn>,
    workers: Vec<Worker>,
}

/// What a job consists of.
#[cfg(feature = "simulation")]
pub(super) struct Pieces {
    pub(super) sender: ControlSender,
    pub(super) events: ControlReceiver,
    pub(super) shared: Arc<Shared>,
    pub(super) control: Control,
    pub(super) io: SnapshotIo,
    pub(super) requests: Receiver<IoRequest>,
    pub(super) workers: Vec<Worker>,
    pub(super) born: Receiver<Newborn>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Parts {
    /// Puts a job together and deploys it, beginning from `begin`; nothing runs yet.
    ///
    /// # Errors
    /// `Internal` if the graph is not one.
    pub fn new(
        job: &str,
        graph: ExecutionGraph,
        options: RuntimeOptions,
        snapshots: Snapshots,
        splits: BTreeMap<String, Vec<Split>>,
        begin: Begin,
    ) -> Result<Self> {
        let clock = Clock::new();
        let (control_sender, events) = control_queue();
        let (io_sender, requests) = channel();
        let names = graph.vertices.iter().map(|vertex| vertex.name.clone()).collect();
        let graph = Arc::new(graph);
        let shared = Arc::new(Shared::of(job));
        let (crew, born) = Crew::new(clock, control_sender.clone(), io_sender.clone());
        let roll = crew.roll().clone();
        let is_incremental = options.incremental;
        let mut control = Control::new(ControlParts {
            clock,
            job: job.to_owned(),
            graph: graph.clone(),
            options: Arc::new(options),
            crew,
            io: io_sender.clone(),
            snapshots: snapshots.clone(),
            shared: shared.clone(),
            splits,
            random: clock.spread(),
        })?;
        control.begin(begin);
        let io = SnapshotIo::new(
            snapshots,
            control_sender.clone(),
            shared.spilled().clone(),
            is_incremental,
        );
        let endpoint =
            JobEndpoint::new(control_sender.clone(), shared.clone(), job, Plan::new(&graph));
        let run = Run::Ready(Box::new(Ready { control, events, io, requests, born }));
        let parts = Self {
            clock,
            control: control_sender,
            io: io_sender,
            roll,
            names,
            shared,
            endpoint,
            run,
        };
        Ok(parts)
    }

    /// The status board.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The job as other threads reach it.
    pub fn endpoint(&self) -> JobEndpoint {
        self.endpoint.clone()
    }

    pub(crate) fn request(&self, request: Request) {
        self.control.send(ControlEvent::Request(request));
    }

    /// The tasks that workers are in right now, by name.
    pub(crate) fn whereabouts(&self) -> Vec<(String, u32)> {
        let current = self.roll.whereabouts().into_iter();
        current
            .map(|(vertex, index)| {
                let name = self.names.get(vertex as usize).map(|name| name.to_string());
                (name.unwrap_or_default(), index)
            })
            .collect()
    }

    /// Starts the threads. With a host the control thread is handed to it and returned: it may go on when the job is over.
    ///
    /// # Errors
    /// `Io` if the system has no thread left; none is left running then.
    #[expect(clippy::disallowed_methods, reason = "the one place where threads are started")]
    pub(crate) fn spawn(
        &mut self,
        options: &RuntimeOptions,
        host: Option<ControlHost>,
    ) -> Result<Option<JoinHandle<()>>> {
        let Run::Ready(ready) = std::mem::replace(&mut self.run, Run::Over) else {
            return Err(Error::new(ErrorKind::Internal, "the job was started before"));
        };
        let Ready { control, events, mut io, requests, born } = *ready;
        let allowed = topology::allowed_cpus();
        let workers = Threads::default();
        let nursery = Nursery {
            cores: if options.cores.is_empty() { allowed.to_vec() } else { options.cores.clone() },
            allowed: allowed.len(),
            idle: options.idle,
            born,
            threads: workers.clone(),
        };
        let (tell, outcome) = channel();
        let steering = ControlLoop {
            control,
            events,
            clock: self.clock,
            nursery,
            roll: self.roll.clone(),
            io: self.io.clone(),
            outcome: tell,
        };
        steering.nursery.spawn_all(options.workers).map_err(no_thread)?;
        let io = std::thread::Builder::new()
            .name("tidegate-io".into())
            .spawn(move || io.serve(&requests))
            .map_err(no_thread)?;
        let is_hosted = host.is_some();
        let control = std::thread::Builder::new()
            .name("tidegate-control".into())
            .spawn(move || match host {
                Some(host) => host(steering),
                None => steering.run(),
            })
            .map_err(no_thread)?;
        let (control, hosted) =
            if is_hosted { (None, Some(control)) } else { (Some(control), None) };
        self.run = Run::Threads { outcome, control, io, workers };
        Ok(hosted)
    }

    /// Does a round of everything on this thread. The outcome once there is one.
    pub fn step(&mut self) -> Option<Result<()>> {
        if let Run::Ready(_) = self.run
            && let Run::Ready(ready) = std::mem::replace(&mut self.run, Run::Over)
        {
            let Ready { control, events, io, requests, born } = *ready;
            let workers = Vec::new();
            let stepped = Stepped { control, events, io, requests, born, workers };
            self.run = Run::Stepped(Box::new(stepped));
        }
        let Run::Stepped(stepped) = &mut self.run else { return None };
        let Stepped { control, events, io, requests, born, workers } = &mut **stepped;
        workers.extend(born.try_iter().map(|(parts, _)| Worker::new(parts)));
        for worker in workers.iter_mut() {
            worker.round();
        }
        while let Ok(request) = requests.try_recv() {
            io.handle(request);
        }
        while let Some(event) = events.try_recv() {
            control.handle(event);
        }
        control.tick();
        let outcome = control.take_outcome();
        if outcome.is_some() {
            while let Ok(request) = requests.try_recv() {
                io.handle(request);
            }
        }
        outcome
    }

    /// The job in pieces that are stepped one by one.
    #[cfg(feature = "simulation")]
    pub(super) fn into_pieces(self) -> Option<Pieces> {
        let Self { control: sender, shared, run, .. } = self;
        let Run::Ready(ready) = run else { return None };
        let Ready { control, events, io, requests, born } = *ready;
        let workers = born.try_iter().map(|(parts, _)| Worker::new(parts)).collect();
        Some(Pieces { sender, events, shared, control, io, requests, workers, born })
    }

    /// Waits for the job's end and for its threads, but for a control thread that has a host. The outcome.
    pub fn join(&mut self) -> Result<()> {
        let Run::Threads { outcome, control, io, workers } =
            std::mem::replace(&mut self.run, Run::Over)
        else {
            return Ok(());
        };
        let panicked = |_| Error::new(ErrorKind::Internal, "the control thread panicked");
        let outcome = outcome.recv().map_err(panicked).flatten();
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in workers.drain(..).chain([io]).chain(control) {
            let _ = thread.join();
        }
        outcome
    }

    /// Leaves threads that don't end behind. The control thread is told to go; workers end when user code returns.
    pub(crate) fn detach(&mut self) {
        self.run = Run::Over;
        self.roll.dismiss();
    }
}
