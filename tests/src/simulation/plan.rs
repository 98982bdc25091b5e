//! What a seed draws: the job, its options, and how unkind the world is to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::config::{Config, Mode, Origin, RestartType};
use tidegate::runtime::RuntimeOptions;
use tidegate::time::{Watermarks, Windows};
use tidegate::{BoxError, BoxStream, Job};

use super::Record;
use super::dice::Dice;
use super::drawing::{Drawing, Open};
use super::operators::{self, Delay, WindowPlan, window_key};
use super::sink::TwoPhase;
use super::source::Numbers;
use super::world::World;

/// What a seed means has changed: the seeds of faults found earlier stay what they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// Sources, counts, exchanges, stops.
    First,
    /// Windows, timers, records held until a commit and savepoints too; tasks that have nothing to do are left alone.
    Second,
}

/// One step of writing the job down; each makes the next stream, [`Op::Split`] two, [`Op::Sink`] none.
#[derive(Clone, Debug)]
pub enum Op {
    /// A source.
    Source { source: usize, parallelism: Option<u32> },
    /// Counts by key behind a keyed edge; by the sequence number's rest instead of the key if `rekey`.
    Keyed { from: usize, parallelism: Option<u32>, rekey: bool },
    /// A rebalance edge.
    Rebalance { from: usize, parallelism: Option<u32> },
    /// A broadcast edge.
    Broadcast { from: usize, parallelism: Option<u32> },
    /// Both streams.
    Union { one: usize, other: usize },
    /// Two streams, each with all records.
    Split { from: usize },
    /// User code that fails when it is told to.
    Fragile { from: usize },
    /// Makes watermarks.
    Watermarks { from: usize },
    /// Holds records back until a timer of event time fires, or one of the wall clock.
    Delay { from: usize, parallelism: Option<u32>, is_event: bool },
    /// Adds up in windows; ends in two sinks.
    Window {
        from: usize,
        parallelism: Option<u32>,
        window: WindowPlan,
        results: usize,
        late: usize,
    },
    /// Lets records go on after a commit.
    AfterCommit { from: usize },
    /// Ends in a sink.
    Sink { from: usize, sink: usize },
}

/// A source.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// How many records each split has; none if it is endless.
    pub ends: Vec<Option<u64>>,
    /// Records at a time.
    pub burst: u64,
    /// The rest after them, in steps of the clock.
    pub pause: u64,
}

/// What comes to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// Records.
    Records,
    /// Sums of windows; what came too late for them is in another sink.
    Windows {
        /// How the windows are set.
        window: WindowPlan,
        /// The other sink.
        late: usize,
    },
    /// Records that came too late for windows.
    Late,
}

/// A sink and what must come to it.
#[derive(Clone, Debug)]
pub struct SinkPlan {
    /// What it is.
    pub kind: SinkKind,
    /// In how many ways each record of a source comes.
    pub ways: BTreeMap<usize, u32>,
    /// Whether each subtask gets each record.
    pub is_broadcast: bool,
    /// How many subtasks it may have had.
    pub parallelisms: BTreeSet<u32>,
    /// Whether records come from one counting operator.
    pub is_counted: bool,
    /// Whether an origin's records of a key came to that in order.
    pub is_ordered: bool,
    /// Whether it is often busy.
    pub is_slow: bool,
}

/// How the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sources end.
    Exhausted,
    /// It is stopped, then run again until its sources end.
    Stopped,
    /// It is stopped with a savepoint: for good if it drains, else it is run again from there.
    Savepoint {
        /// Whether it drains.
        drain: bool,
    },
}

/// Chances in 10,000 a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unkindness {
    /// A process dies.
    pub crash: u64,
    /// The disk fails soon.
    pub disk: u64,
    /// User code fails soon.
    pub user: u64,
    /// A sink can't prepare, or commits only in part.
    pub sink: u64,
    /// The disk fails so that the process dies with it.
    pub disk_crash: u64,
    /// How many of them at the most.
    pub most: u64,
}

/// How often each piece is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Mail of a worker.
    pub mail: u64,
    /// A task's step.
    pub task: u64,
    /// A request to the writer of snapshots.
    pub io: u64,
    /// An event for control.
    pub event: u64,
    /// Time that passes, and control that sees it.
    pub clock: u64,
}

/// All that is drawn before a schedule begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job.
    pub ops: Vec<Op>,
    /// Its sources.
    pub sources: Vec<SourcePlan>,
    /// Its sinks.
    pub sinks: Vec<SinkPlan>,
    /// How many keys.
    pub keys: u64,
    /// Subtasks of what says nothing else, by process; the last one stays.
    pub parallelism: Vec<u32>,
    /// Workers, by process.
    pub workers: Vec<u32>,
    /// The options.
    pub config: Config,
    /// Bytes of a buffer.
    pub segment_bytes: usize,
    /// How often sources send latency markers.
    pub latency_interval: Duration,
    /// Nanoseconds that a step takes.
    pub tick: u64,
    /// Steps before everything heals.
    pub safety_steps: u64,
    /// How it ends.
    pub ending: Ending,
    /// What goes wrong.
    pub unkindness: Unkindness,
    /// Whose turn it is.
    pub weights: Weights,
    /// Chances in 10,000 steps of a savepoint.
    pub savepoints: u64,
    /// Chances in 6 processes to go back to one.
    pub goes_back: u64,
    /// Whether tasks that had nothing to do are left alone until something happens.
    pub skips_idle: bool,
}

/// A timeout that no checkpoint needs.
const PATIENCE: Duration = Duration::from_secs(600);

impl Plan {
    /// What a seed draws.
    pub fn draw(dice: &mut Dice, edition: Edition) -> Self {
        let has_more = edition == Edition::Second;
        let tick = dice.pick(&[1_000, 2_000, 5_000, 20_000]);
        let is_rescaled = dice.chance(1, 4);
        let default = dice.pick(&[1, 1, 2, 2, 2, 3]);
        let parallelism = if is_rescaled {
            (0..6).map(|_| dice.within(1, 3) as u32).collect()
        } else {
            vec![default]
        };
        let workers = (0..4).map(|_| dice.within(1, 3) as u32).collect();
        let ending = if dice.chance(1, 6) {
            Ending::Stopped
        } else if has_more && dice.chance(1, 6) {
            Ending::Savepoint { drain: dice.chance(1, 2) }
        } else {
            Ending::Exhausted
        };
        let vertices = dice.pick(&[1u64, 1, 2, 2, 2, 3, 3, 4, 5]);
        let count = if vertices > 1 && dice.chance(3, 5) { 2 } else { 1 };
        let mut sources = Vec::new();
        for _ in 0..count {
            sources.push(draw_source(dice, ending));
        }
        let mut drawing = Drawing {
            dice,
            is_rescaled,
            ops: Vec::new(),
            streams: 0,
            open: Vec::new(),
            root: Vec::new(),
            feeds: Vec::new(),
            sinks: Vec::new(),
        };
        for source in 0..count {
            let parallelism = drawing.parallelism();
            let stage = drawing.stage(BTreeSet::new());
            drawing.ops.push(Op::Source { source, parallelism });
            let stream = drawing.next_stream();
            drawing.open.push(Open {
                stream,
                stage,
                parallelism,
                ways: BTreeMap::from([(source, 1)]),
                is_counted: false,
                is_ordered: true,
                is_broadcast: false,
                was_keyed: false,
            });
        }
        let is_mixed = count == 2 && drawing.dice.chance(1, 3);
        if is_mixed {
            drawing.mix();
        }
        for _ in count as u64..=vertices.saturating_sub(2 * u64::from(is_mixed)) {
            for _ in 0..drawing.dice.below(4) {
                drawing.decorate();
            }
            let from = drawing.take();
            if from.is_broadcast {
                drawing.open.push(from);
                continue;
            }
            let kinds: &[u64] =
                if has_more { &[0, 0, 0, 1, 1, 2, 3, 4, 5, 6] } else { &[0, 0, 0, 0, 1, 1, 2] };
            // A savepoint that stops the job takes nothing along that goes on after its commit.
            let has_end = ending == Ending::Exhausted;
            let kind = drawing.dice.pick(&kinds[..kinds.len() - usize::from(has_more && !has_end)]);
            let parallelism = drawing.parallelism();
            if kind < 3 {
                drawing.exchange(from, kind, parallelism);
            } else {
                drawing.exchange_more(from, kind - 3, parallelism);
            }
        }
        drawing.finish(&parallelism);
        let (ops, sinks) = (drawing.ops, drawing.sinks);
        let mut config = draw_config(dice, tick);
        // What is in flight on an edge without keys can't be rescaled: a few keep it, and are refused.
        if is_rescaled && config.checkpoint.num_retained > 1 {
            config.checkpoint.unaligned_any_edge = false;
        }
        Self {
            ops,
            sources,
            sinks,
            keys: dice.within(1, 9),
            parallelism,
            workers,
            config,
            segment_bytes: dice.pick(&[64, 128, 256, 512]),
            latency_interval: Duration::from_nanos(tick * dice.pick(&[0, 0, 40, 200])),
            tick,
            safety_steps: dice.within(100, 700),
            ending,
            unkindness: draw_unkindness(dice),
            weights: Weights {
                mail: dice.pick(&[1, 2, 4, 8]),
                task: dice.pick(&[2, 4, 8]),
                io: dice.pick(&[1, 2, 4, 8]),
                event: dice.pick(&[1, 2, 4, 8]),
                clock: dice.pick(&[1, 1, 2]),
            },
            savepoints: if has_more { dice.pick(&[0, 0, 40, 100]) } else { 0 },
            goes_back: if has_more { dice.below(3) } else { 0 },
            skips_idle: has_more,
        }
    }

    /// The job of process number `process`, in size number `size`.
    pub fn job(
        &self,
        (process, size): (usize, usize),
        world: &Arc<Mutex<World>>,
        fail_in: &Arc<AtomicU64>,
    ) -> Job {
        let mut config = self.config.clone();
        let nth = |of: &[u32]| of[size.min(of.len() - 1)].to_string();
        let known = "the key is in the table";
        if process > 0 {
            config.checkpoint.timeout = PATIENCE;
        }
        config.set("parallelism.default", &nth(&self.parallelism), Origin::Code).expect(known);
        config.set("taskmanager.slots", &nth(&self.workers), Origin::Code).expect(known);
        let mut job = Job::with_config("simulated", config);
        job.resume(true);
        let mut streams: Vec<Option<BoxStream<Record>>> = Vec::new();
        for (at, op) in self.ops.iter().enumerate() {
            let mut take = |from: usize| streams[from].take().expect("a stream is used once");
            let with = |stream: BoxStream<Record>, parallelism: Option<u32>| match parallelism {
                Some(parallelism) => stream.with_parallelism(parallelism).boxed(),
                None => stream,
            };
            let made = match *op {
                Op::Source { source, parallelism } => {
                    let plan = &self.sources[source];
                    let numbers = Numbers {
                        world: world.clone(),
                        source,
                        splits: plan.ends.len(),
                        burst: plan.burst,
                        pause_nanos: plan.pause * self.tick,
                        keys: self.keys,
                    };
                    with(job.source(&format!("source {source}"), numbers).boxed(), parallelism)
                }
                Op::Keyed { from, parallelism, rekey } => {
                    let stream = take(from);
                    let stream = if rekey {
                        stream.map(|r| (r.0, r.1, 100 + r.1 % 5, r.3)).boxed()
                    } else {
                        stream
                    };
                    let zero: Record = (0, 0, 0, 0);
                    let counted = stream.key_by(|r| r.2).fold(
                        &format!("count {at}"),
                        zero,
                        |count: &mut Record, r| *count = (r.0, r.1, r.2, count.3 + 1),
                    );
                    with(counted.map(|(_, record)| record).boxed(), parallelism)
                }
                Op::Rebalance { from, parallelism } => {
                    with(take(from).rebalance().boxed(), parallelism)
                }
                Op::Broadcast { from, parallelism } => {
                    with(take(from).broadcast().boxed(), parallelism)
                }
                Op::Union { one, other } => {
                    let (one, other) = (take(one), take(other));
                    one.union(other).boxed()
                }
                Op::Split { from } => {
                    let (main, side) = take(from).split(|r: Record, main, side| {
                        main.emit(r);
                        side.emit(r);
                    });
                    streams.push(Some(main.boxed()));
                    side.boxed()
                }
                Op::Fragile { from } => {
                    let fail_in = fail_in.clone();
                    let try_it = move |r: Record| fragile(&fail_in).map(|()| r);
                    take(from).try_map(try_it).boxed()
                }
                Op::Watermarks { from } => {
                    let watermarks = Watermarks::bounded_out_of_orderness(Duration::from_millis(3));
                    take(from).watermarks(watermarks, |r| r.1 as i64).boxed()
                }
                Op::Delay { from, parallelism, is_event } => {
                    let wait = (!is_event).then(|| Duration::from_millis(1));
                    let stream = take(from)
                        .key_by(|r| r.2)
                        .process(&format!("delay {at}"), move |states| Delay::new(states, wait));
                    with(stream.boxed(), parallelism)
                }
                Op::Window { from, parallelism, window, results, late } => {
                    let WindowPlan { size, bound, lateness, .. } = window;
                    let bound = Watermarks::bounded_out_of_orderness(Duration::from_millis(bound));
                    let (sums, too_late) = take(from)
                        .watermarks(bound, |r| r.1 as i64)
                        .key_by(|r| window_key(r.1))
                        .window(Windows::tumbling(Duration::from_millis(size)), |r: Record| {
                            r.1 as i64
                        })
                        .allowed_lateness(Duration::from_millis(lateness))
                        .aggregate_with_late(
                            &format!("window {at}"),
                            (0u64, 0u64),
                            |sum: &mut (u64, u64), r: Record| operators::add(sum, r.0, r.1),
                            |sum| *sum,
                        );
                    let sums = sums
                        .map(|(key, window, (count, sum))| (window.end.0 as u64, key, count, sum));
                    self.end(with(sums.boxed(), parallelism), results, world);
                    self.end(too_late.boxed(), late, world);
                    continue;
                }
                Op::AfterCommit { from } => take(from).after_commit(&format!("held {at}")).boxed(),
                Op::Sink { from, sink } => {
                    self.end(take(from), sink, world);
                    continue;
                }
            };
            streams.push(Some(made));
        }
        job
    }

    fn end(&self, stream: BoxStream<Record>, sink: usize, world: &Arc<Mutex<World>>) {
        let (name, world) = (format!("sink {sink}"), world.clone());
        let busy_nanos = 12 * self.tick;
        if self.sinks[sink].is_slow {
            stream.sink(&name, TwoPhase::<true> { world, sink, busy_nanos });
        } else {
            stream.sink(&name, TwoPhase::<false> { world, sink, busy_nanos });
        }
    }

    /// Sets what a configuration would refuse.
    pub fn tune(&self, options: &mut RuntimeOptions) {
        options.checkpointed = true;
        options.segment_bytes = self.segment_bytes;
        options.record_bytes_max = 1 << 16;
        options.emission_bytes_max = 1 << 20;
        options.latency_interval = self.latency_interval;
    }

    /// Whether checkpoints of the first process may all be given up.
    pub fn is_impatient(&self) -> bool {
        self.config.checkpoint.timeout < PATIENCE
    }

    /// Whether sources end at different times.
    pub fn ends_apart(&self) -> bool {
        let ends: BTreeSet<u64> =
            self.sources.iter().flat_map(|source| source.ends.iter().flatten().copied()).collect();
        self.ending == Ending::Exhausted
            && ends.len() > 1
            && self.sources.iter().all(|source| source.ends.iter().all(Option::is_some))
    }
}

fn fragile(fail_in: &AtomicU64) -> Result<(), BoxError> {
    match fail_in.load(Ordering::Relaxed) {
        0 => Ok(()),
        left => {
            fail_in.store(left - 1, Ordering::Relaxed);
            if left == 1 { Err("injected: user code failed".into()) } else { Ok(()) }
        }
    }
}

fn draw_source(dice: &mut Dice, ending: Ending) -> SourcePlan {
    let is_endless = ending != Ending::Exhausted && dice.chance(3, 4);
    let most = dice.pick(&[3, 12, 30, 60]);
    let ends =
        (0..dice.within(1, 3)).map(|_| (!is_endless).then(|| dice.within(0, most))).collect();
    SourcePlan { ends, burst: dice.within(1, 6), pause: dice.pick(&[1, 3, 8, 20]) }
}

fn draw_config(dice: &mut Dice, tick: u64) -> Config {
    let mut config = Config::default();
    let steps = |n: u64| Duration::from_nanos(tick * n);
    config.parallelism.max = dice.pick(&[4, 8, 16]);
    let checkpoint = &mut config.checkpoint;
    checkpoint.interval = dice.pick(&[Some(20), Some(40), Some(40), Some(80), None]).map(steps);
    checkpoint.timeout = steps(dice.pick(&[150, 600, 4_000, 1_000_000_000, 1_000_000_000]));
    checkpoint.min_pause = steps(dice.pick(&[0, 0, 0, 60]));
    checkpoint.num_retained = dice.within(1, 3) as u32;
    checkpoint.drain_hold = dice.chance(1, 2);
    checkpoint.unaligned_any_edge = dice.chance(1, 3);
    checkpoint.tolerable_failed = dice.pick(&[None, None, None, Some(2)]);
    match dice.below(20) {
        0..=4 => {
            checkpoint.unaligned_enabled = false;
            checkpoint.max_concurrent = dice.pick(&[1, 1, 2, 3]);
        }
        5..=11 => checkpoint.aligned_timeout = Duration::ZERO,
        12..=18 => checkpoint.aligned_timeout = steps(dice.pick(&[3, 10, 40, 120])),
        _ => {
            checkpoint.mode = Mode::AtLeastOnce;
            checkpoint.unaligned_enabled = false;
        }
    }
    let restart = &mut config.restart_strategy;
    restart.exponential_initial = steps(20);
    restart.exponential_max = steps(500);
    restart.exponential_jitter = 0.0;
    restart.fixed_delay_delay = steps(30);
    restart.fixed_delay_attempts = dice.within(1, 3) as u32;
    restart.failure_rate_delay = steps(10);
    restart.failure_rate_interval = steps(400);
    restart.kind = dice.pick(&[
        RestartType::ExponentialDelay,
        RestartType::ExponentialDelay,
        RestartType::FixedDelay,
        RestartType::FailureRate,
    ]);
    config
}

fn draw_unkindness(dice: &mut Dice) -> Unkindness {
    let mut unkindness = Unkindness { most: dice.within(1, 5), ..Unkindness::default() };
    if dice.chance(1, 6) {
        return unkindness;
    }
    let mut some = |n: u64| if dice.chance(n, 4) { dice.pick(&[10, 30, 80]) } else { 0 };
    unkindness.crash = some(2);
    unkindness.disk = some(3);
    unkindness.disk_crash = some(1);
    unkindness.user = some(2);
    unkindness.sink = some(1);
    unkindness
}
