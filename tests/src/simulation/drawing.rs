//! The shape of a job: which stages feed which.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;
use super::operators::{BOUND_OF_ALL, WindowPlan};
use super::plan::{Op, SinkKind, SinkPlan};

/// A stream while the job is drawn.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) stream: usize,
    pub(super) stage: usize,
    pub(super) parallelism: Option<u32>,
    pub(super) ways: BTreeMap<usize, u32>,
    pub(super) is_counted: bool,
    pub(super) is_ordered: bool,
    pub(super) is_broadcast: bool,
    /// Whether there was a keyed edge before.
    pub(super) was_keyed: bool,
}

/// A job while it is drawn, step by step.
pub(super) struct Drawing<'d> {
    pub(super) dice: &'d mut Dice,
    /// Whether its parallelism changes from process to process.
    pub(super) is_rescaled: bool,
    pub(super) ops: Vec<Op>,
    pub(super) streams: usize,
    pub(super) open: Vec<Open>,
    /// Stages joined into one vertex lead to one root.
    pub(super) root: Vec<usize>,
    /// By stage, those that feed it.
    pub(super) feeds: Vec<BTreeSet<usize>>,
    pub(super) sinks: Vec<SinkPlan>,
}

impl Drawing<'_> {
    pub(super) fn stage(&mut self, feeds: BTreeSet<usize>) -> usize {
        self.root.push(self.root.len());
        self.feeds.push(feeds);
        self.root.len() - 1
    }

    pub(super) fn find(&self, mut stage: usize) -> usize {
        while self.root[stage] != stage {
            stage = self.root[stage];
        }
        stage
    }

    /// Whether `below` gets anything from `above`.
    pub(super) fn is_fed(&self, below: usize, above: usize) -> bool {
        let (below, above) = (self.find(below), self.find(above));
        let mut waiting = vec![below];
        let mut seen = BTreeSet::new();
        while let Some(at) = waiting.pop() {
            for stage in 0..self.feeds.len() {
                if self.find(stage) != at {
                    continue;
                }
                for &feed in &self.feeds[stage] {
                    let feed = self.find(feed);
                    if feed == above {
                        return true;
                    }
                    if seen.insert(feed) {
                        waiting.push(feed);
                    }
                }
            }
        }
        false
    }

    pub(super) fn next_stream(&mut self) -> usize {
        self.streams += 1;
        self.streams - 1
    }

    pub(super) fn parallelism(&mut self) -> Option<u32> {
        self.dice.chance(1, 5).then(|| self.dice.within(1, 4) as u32)
    }

    pub(super) fn take(&mut self) -> Open {
        let at = self.dice.below(self.open.len() as u64) as usize;
        self.open.swap_remove(at)
    }

    pub(super) fn exchange(&mut self, from: Open, kind: u64, parallelism: Option<u32>) {
        let stage = self.stage(BTreeSet::from([from.stage]));
        let mut to = Open { stage, parallelism, stream: 0, ..from.clone() };
        let op = match kind {
            0 => {
                let rekey = self.dice.chance(1, 4);
                to.is_ordered &= !rekey || !from.was_keyed;
                to.was_keyed = true;
                to.is_counted = true;
                Op::Keyed { from: from.stream, parallelism, rekey }
            }
            1 => {
                to.is_ordered = false;
                Op::Rebalance { from: from.stream, parallelism }
            }
            _ => {
                to.is_broadcast = true;
                to.is_counted = false;
                Op::Broadcast { from: from.stream, parallelism }
            }
        };
        self.ops.push(op);
        to.stream = self.next_stream();
        self.open.push(to);
    }

    /// What a second edition draws besides. Whether it could be drawn here.
    pub(super) fn exchange_more(
        &mut self,
        from: Open,
        kind: u64,
        parallelism: Option<u32>,
    ) -> bool {
        match kind {
            0 => self.window(from, parallelism),
            1 | 2 => {
                let stage = self.stage(BTreeSet::from([from.stage]));
                let is_event = kind == 1;
                self.ops.push(Op::Delay { from: from.stream, parallelism, is_event });
                let stream = self.next_stream();
                self.open.push(Open { stream, stage, parallelism, was_keyed: true, ..from });
            }
            _ => {
                // What a sink of the same task commits can't be told from what goes on after that.
                let is_alone =
                    self.open.iter().all(|open| self.find(open.stage) != self.find(from.stage));
                if !is_alone {
                    self.open.push(from);
                    return false;
                }
                self.ops.push(Op::AfterCommit { from: from.stream });
                let stream = self.next_stream();
                let kind = self.dice.pick(&[0, 0, 1]);
                self.exchange(Open { stream, ..from }, kind, parallelism);
            }
        }
        true
    }

    /// Adds a copy of the stream up in windows; what comes too late goes to a sink of its own.
    fn window(&mut self, from: Open, parallelism: Option<u32>) {
        self.ops.push(Op::Split { from: from.stream });
        let (copy, stream) = (self.next_stream(), self.next_stream());
        self.stage(BTreeSet::from([from.stage]));
        let window = WindowPlan {
            size: self.dice.pick(&[1, 4, 10, 30]),
            bound: self.dice.pick(&[0, 3, 10, BOUND_OF_ALL]),
            lateness: if self.is_rescaled { 0 } else { self.dice.pick(&[0, 0, 5]) },
            // A rescaled subtask begins with the least watermark of all: what was too late before may open a window again.
            fires_once: !self.is_rescaled,
        };
        let results = self.sinks.len();
        let op = Op::Window { from: copy, parallelism, window, results, late: results + 1 };
        self.ops.push(op);
        for kind in [SinkKind::Windows { window, late: results + 1 }, SinkKind::Late] {
            self.sinks.push(SinkPlan {
                kind,
                ways: from.ways.clone(),
                is_broadcast: false,
                parallelisms: BTreeSet::new(),
                is_counted: false,
                is_ordered: false,
                is_slow: self.dice.chance(1, 5),
            });
        }
        self.open.push(Open { stream, ..from });
    }

    pub(super) fn unite(&mut self, one: Open, other: Open) {
        let (a, b) = (self.find(one.stage), self.find(other.stage));
        self.root[a] = b;
        self.ops.push(Op::Union { one: one.stream, other: other.stream });
        let mut ways = one.ways.clone();
        for (&source, &more) in &other.ways {
            *ways.entry(source).or_default() += more;
        }
        let overlaps = one.ways.keys().any(|source| other.ways.contains_key(source));
        let stream = self.next_stream();
        self.open.push(Open {
            stream,
            ways,
            is_counted: false,
            was_keyed: one.was_keyed || other.was_keyed,
            is_ordered: one.is_ordered && other.is_ordered && !overlaps,
            ..one
        });
    }

    /// A task that reads an edge whose barriers overtake and one where they don't.
    pub(super) fn mix(&mut self) {
        for kind in [0, 1] {
            let from = self.open.remove(0);
            self.exchange(from, kind, None);
        }
        let (one, other) = (self.take(), self.take());
        self.unite(one, other);
    }

    /// A step that makes no vertex.
    pub(super) fn decorate(&mut self) {
        match self.dice.below(7) {
            0 | 5 | 6 if self.open.len() >= 2 => {
                let (one, other) = (self.take(), self.take());
                let apart = self.find(one.stage) != self.find(other.stage)
                    && !self.is_fed(one.stage, other.stage)
                    && !self.is_fed(other.stage, one.stage)
                    && one.parallelism == other.parallelism
                    && !one.is_broadcast
                    && !other.is_broadcast;
                if !apart {
                    self.open.extend([one, other]);
                    return;
                }
                self.unite(one, other);
            }
            1 if self.open.len() < 3 => {
                let from = self.take();
                self.ops.push(Op::Split { from: from.stream });
                for _ in 0..2 {
                    let stream = self.next_stream();
                    self.open.push(Open { stream, ..from.clone() });
                }
            }
            2 | 3 => {
                let from = self.take();
                self.ops.push(Op::Fragile { from: from.stream });
                let stream = self.next_stream();
                self.open.push(Open { stream, ..from });
            }
            _ => {
                let from = self.take();
                self.ops.push(Op::Watermarks { from: from.stream });
                let stream = self.next_stream();
                self.open.push(Open { stream, ..from });
            }
        }
    }

    pub(super) fn finish(&mut self, parallelism: &[u32]) {
        while !self.open.is_empty() {
            let from = self.take();
            let parallelisms = match from.parallelism {
                Some(own) => BTreeSet::from([own]),
                None => parallelism.iter().copied().collect(),
            };
            self.ops.push(Op::Sink { from: from.stream, sink: self.sinks.len() });
            self.sinks.push(SinkPlan {
                kind: SinkKind::Records,
                ways: from.ways,
                is_broadcast: from.is_broadcast,
                parallelisms,
                is_counted: from.is_counted,
                is_ordered: from.is_ordered,
                is_slow: self.dice.chance(2, 5),
            });
        }
    }
}
