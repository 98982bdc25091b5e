//! The world outside the job: how much sources have, what sinks have committed, and what is wrong with it.
//!
//! It survives crashes. The oracle is here: a committed record was never committed before (unless the job may repeat), and in
//! the end every record of every source was committed to each sink that it flows to, as often as there are ways.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate::id::CheckpointId;

use super::operators::{BOUND_OF_ALL, add};
use super::plan::{SinkKind, SinkPlan};
use super::{Record, origin};

/// What one writer prepared for one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Which process.
    pub process: u64,
    /// Which attempt in it.
    pub attempt: u32,
    /// Which subtask.
    pub subtask: u32,
    /// For which checkpoint.
    pub checkpoint: u64,
    /// The records.
    pub records: Vec<Record>,
}

impl Transaction {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let head =
            [self.process, u64::from(self.attempt), u64::from(self.subtask), self.checkpoint];
        let records = self.records.iter().flat_map(|r| [r.0, r.1, r.2, r.3]);
        head.into_iter().chain(records).flat_map(u64::to_le_bytes).collect()
    }

    /// Of bytes.
    pub fn decode(bytes: &[u8]) -> Self {
        let numbers: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("a chunk has eight bytes")))
            .collect();
        Self {
            process: numbers[0],
            attempt: numbers[1] as u32,
            subtask: numbers[2] as u32,
            checkpoint: numbers[3],
            records: numbers[4..].chunks_exact(4).map(|n| (n[0], n[1], n[2], n[3])).collect(),
        }
    }

    fn id(&self) -> (u64, u32, u32, u64) {
        (self.process, self.attempt, self.subtask, self.checkpoint)
    }
}

/// One sink's output.
#[derive(Debug, Default)]
struct Output {
    transactions: BTreeMap<(u64, u32, u32, u64), Transaction>,
    /// How often a record came; by subtask too where the stream is broadcast.
    seen: HashMap<(u64, u64, u32), u32>,
    /// Count, origin and sequence number by key.
    by_key: BTreeMap<u64, Vec<(u64, u64, u64)>>,
    /// Count and sum by a window's end and key.
    windows: BTreeMap<(u64, u64), (u64, u64)>,
}

impl Output {
    /// Takes in what was committed. What is wrong with it.
    fn add(
        &mut self,
        plan: &SinkPlan,
        transaction: &Transaction,
        is_exact: bool,
    ) -> Option<String> {
        let mut wrong = None;
        let Transaction { subtask, attempt, checkpoint, .. } = transaction;
        for &(origin, sequence, key, count) in &transaction.records {
            if let SinkKind::Windows { window, .. } = plan.kind {
                let (end, of, count, sum) = (origin, sequence, key, count);
                let total = self.windows.entry((end, of)).or_default();
                if window.lateness > 0 {
                    // What came while it was kept fires all of it again.
                    *total = (*total).max((count, sum));
                    continue;
                }
                if is_exact && window.fires_once && *total != (0, 0) {
                    wrong.get_or_insert(format!("a second sum of key {of} in the window to {end}"));
                }
                *total = (total.0 + count, total.1.wrapping_add(sum));
                continue;
            }
            let place = if plan.is_broadcast { *subtask } else { 0 };
            let seen = self.seen.entry((origin, sequence, place)).or_default();
            *seen += 1;
            let ways = plan.ways.get(&((origin >> 8) as usize)).copied().unwrap_or(0);
            if is_exact && *seen > ways {
                wrong.get_or_insert(format!(
                    "record {sequence} of origin {origin} {seen} times, not {ways}; checkpoint {checkpoint}, \
                     subtask {subtask}, attempt {attempt}",
                ));
            }
            if plan.is_counted {
                self.by_key.entry(key).or_default().push((count, origin, sequence));
            }
        }
        wrong
    }
}

/// All that is outside.
#[derive(Debug)]
pub struct World {
    /// Which process runs.
    pub process: u64,
    /// Whether a record may come once only.
    pub is_exact: bool,
    sinks: Vec<SinkPlan>,
    ends: Vec<Vec<Option<u64>>>,
    /// Up to where splits were ever read.
    emitted: Vec<Vec<u64>>,
    /// Up to where they are read.
    positions: Vec<Vec<u64>>,
    /// How many readers were opened.
    pub readers: u64,
    outputs: Vec<Output>,
    /// Checkpoints that control has declared complete.
    completed: BTreeSet<u64>,
    /// The first thing found wrong.
    pub violation: Option<String>,
    /// How many preparations fail next.
    pub prepare_faults: u32,
    /// How many commits are cut short next.
    pub commit_faults: u32,
    /// Commits that found something to do.
    pub commits: u64,
    /// Commits of what had been committed before.
    pub repeated_commits: u64,
    /// Whether each commit is printed.
    pub is_told: bool,
    /// A digest of what was committed, in order.
    pub digest: u64,
}

impl World {
    /// A world with these ends of splits, by source, and these sinks.
    pub fn new(ends: Vec<Vec<Option<u64>>>, sinks: Vec<SinkPlan>, is_exact: bool) -> Self {
        let emitted: Vec<Vec<u64>> = ends.iter().map(|splits| vec![0; splits.len()]).collect();
        let outputs = sinks.iter().map(|_| Output::default()).collect();
        Self {
            process: 0,
            is_exact,
            sinks,
            ends,
            positions: emitted.clone(),
            emitted,
            readers: 0,
            outputs,
            completed: BTreeSet::new(),
            violation: None,
            prepare_faults: 0,
            commit_faults: 0,
            commits: 0,
            repeated_commits: 0,
            is_told: false,
            digest: 0xCBF2_9CE4_8422_2325,
        }
    }

    /// Where a split ends, if it does.
    pub fn end_of(&self, source: usize, split: usize) -> Option<u64> {
        self.ends[source][split]
    }

    /// A split was read up to there.
    pub fn emitted(&mut self, source: usize, split: usize, next: u64) {
        let emitted = &mut self.emitted[source][split];
        *emitted = (*emitted).max(next);
        self.positions[source][split] = next;
    }

    /// A reader was opened that goes on from there.
    pub fn opened(&mut self, source: usize, positions: &[(u64, u64)]) {
        self.readers += 1;
        for &(split, next) in positions {
            self.positions[source][split as usize] = next;
        }
    }

    /// Splits end where they are read up to: the job was drained there.
    pub fn end_here(&mut self) {
        for (ends, positions) in self.ends.iter_mut().zip(&self.positions) {
            for (end, position) in ends.iter_mut().zip(positions) {
                *end = Some(*position);
            }
        }
    }

    /// Lets endless splits end `more` records behind what was ever read of them.
    pub fn end_all(&mut self, more: u64) {
        for (ends, emitted) in self.ends.iter_mut().zip(&self.emitted) {
            for (end, emitted) in ends.iter_mut().zip(emitted) {
                end.get_or_insert(emitted + more);
            }
        }
    }

    /// Control has declared a checkpoint complete.
    pub fn completed(&mut self, checkpoint: CheckpointId) {
        self.completed.insert(checkpoint.0);
    }

    /// A writer was told that a checkpoint is complete.
    pub fn told_complete(&mut self, checkpoint: CheckpointId, restored: Option<CheckpointId>) {
        if !self.completed.contains(&checkpoint.0) && restored != Some(checkpoint) {
            self.violate(format!("a sink was told that checkpoint {checkpoint} is complete"));
        }
    }

    /// Notes the first thing that is wrong.
    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn takes_prepare_fault(&mut self) -> bool {
        let fails = self.prepare_faults > 0;
        self.prepare_faults -= u32::from(fails);
        fails
    }

    pub(super) fn takes_commit_fault(&mut self) -> bool {
        let fails = self.commit_faults > 0;
        self.commit_faults -= u32::from(fails);
        fails
    }

    /// Makes a transaction visible, if it isn't.
    pub fn commit(&mut self, sink: usize, transaction: &Transaction) {
        let plan = &self.sinks[sink];
        let output = &mut self.outputs[sink];
        if output.transactions.contains_key(&transaction.id()) {
            self.repeated_commits += 1;
            return;
        }
        output.transactions.insert(transaction.id(), transaction.clone());
        self.commits += 1;
        if self.is_told {
            println!("                 sink {sink} commits {transaction:?}");
        }
        for &(origin, sequence, key, count) in &transaction.records {
            for number in [origin, sequence, key, count] {
                self.digest = (self.digest ^ number).wrapping_mul(0x0100_0000_01B3);
            }
        }
        if let Some(wrong) = output.add(plan, transaction, self.is_exact) {
            self.violate(format!("sink {sink} got {wrong}"));
        }
    }

    /// Takes back what was committed for checkpoints behind `after`.
    pub fn retract(&mut self, sink: usize, after: CheckpointId) {
        let output = &mut self.outputs[sink];
        let kept = std::mem::take(output)
            .transactions
            .into_iter()
            .filter(|(_, transaction)| transaction.checkpoint <= after.0);
        for (id, transaction) in kept {
            let _ = output.add(&self.sinks[sink], &transaction, self.is_exact);
            output.transactions.insert(id, transaction);
        }
    }

    /// The job has ended: everything must be there.
    pub fn check_end(&mut self) {
        let mut wrong = None;
        for (sink, plan) in self.sinks.iter().enumerate() {
            match plan.kind {
                SinkKind::Records => {}
                SinkKind::Windows { late, .. } => {
                    let found = self.wrong_windows(plan, &self.outputs[sink], &self.outputs[late]);
                    if let Some(found) = found.filter(|_| self.is_exact) {
                        wrong.get_or_insert(format!("sink {sink}: {found}"));
                    }
                    continue;
                }
                SinkKind::Late => continue,
            }
            let output = &mut self.outputs[sink];
            for (&source, &ways) in &plan.ways {
                for (split, &end) in self.ends[source].iter().enumerate() {
                    let origin = origin(source, split);
                    for sequence in 0..end.unwrap_or(self.emitted[source][split]) {
                        let found = missing(plan, output, (origin, sequence), ways, self.is_exact);
                        if let Some(found) = found {
                            wrong.get_or_insert(format!(
                                "sink {sink} has record {sequence} of origin {origin} {found}"
                            ));
                        }
                    }
                }
            }
            if self.is_exact
                && plan.is_counted
                && let Some(found) = wrong_counts(plan, output)
            {
                wrong.get_or_insert(format!("sink {sink}: {found}"));
            }
        }
        if let Some(wrong) = wrong {
            self.violate(wrong);
        }
    }
}

impl World {
    /// Whether windows have added up all that did not come too late for them, and each window was told.
    fn wrong_windows(&self, plan: &SinkPlan, sums: &Output, late: &Output) -> Option<String> {
        let SinkKind::Windows { window, .. } = plan.kind else { return None };
        if window.bound >= BOUND_OF_ALL && !late.seen.is_empty() {
            return Some("a record came too late, though none can".to_owned());
        }
        let mut wanted: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        for (&source, &ways) in &plan.ways {
            for (split, &end) in self.ends[source].iter().enumerate() {
                let origin = origin(source, split);
                for sequence in 0..end.unwrap_or(self.emitted[source][split]) {
                    let too_late = late.seen.get(&(origin, sequence, 0)).copied().unwrap_or(0);
                    for _ in too_late..ways {
                        add(wanted.entry(window.place(sequence)).or_default(), origin, sequence);
                    }
                }
            }
        }
        let mut places: BTreeSet<_> = wanted.keys().chain(sums.windows.keys()).collect();
        places.retain(|&place| wanted.get(place) != sums.windows.get(place));
        places.first().map(|&place| {
            let (wanted, found) = (wanted.get(place), sums.windows.get(place));
            format!("key {} has {found:?} in the window to {}, not {wanted:?}", place.1, place.0)
        })
    }
}

/// What is wrong with how often a record came.
fn missing(
    plan: &SinkPlan,
    output: &Output,
    (origin, sequence): (u64, u64),
    ways: u32,
    is_exact: bool,
) -> Option<String> {
    if plan.is_broadcast {
        // As many subtasks as there were when it was sent, from the first on.
        let subtasks =
            (0..).take_while(|&at| output.seen.contains_key(&(origin, sequence, at))).count();
        let is_fine = plan.parallelisms.contains(&(subtasks as u32)) || !is_exact && subtasks > 0;
        return (!is_fine).then(|| format!("in {subtasks} subtasks"));
    }
    let seen = output.seen.get(&(origin, sequence, 0)).copied().unwrap_or(0);
    let is_fine = if is_exact { seen == ways } else { seen >= ways };
    (!is_fine).then(|| format!("{seen} times instead of {ways}"))
}

/// Each key's records are counted through from 1, and in the order of their origin where there is one way only.
fn wrong_counts(plan: &SinkPlan, output: &mut Output) -> Option<String> {
    for (key, counts) in &mut output.by_key {
        counts.sort_unstable();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, &(count, origin, sequence)) in (1..).zip(counts.iter()) {
            if count != at {
                return Some(format!("key {key} has count {count} where {at} is expected"));
            }
            let before = last.insert(origin, sequence);
            if plan.is_ordered && before.is_some_and(|before| before > sequence) {
                return Some(format!("key {key}: record {sequence} of {origin} is out of order"));
            }
        }
    }
    None
}
