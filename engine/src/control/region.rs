//! Which tasks restart together: failover regions.
//!
//! A region is a maximal set of subtasks connected by pipelined exchanges. If one fails, its region restarts; so do,
//! recursively, producers whose needed blocking result is gone, and every consumer of a restarted region. A value
//! computed once per graph; asked by `control::failover`.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::SubtaskId;

/// How a result travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// While it is produced: producer and consumer run, and restart, together.
    Pipelined,
    /// After it is complete: it outlives its producer.
    Blocking,
}

/// One edge between subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who produces.
    pub producer: SubtaskId,
    /// Who consumes.
    pub consumer: SubtaskId,
    /// How.
    pub exchange: Exchange,
}

/// Which of a failed task's relatives restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailoverStrategy {
    /// Its region, and what depends on it.
    #[default]
    Region,
    /// All tasks.
    Full,
}

/// The regions of a graph.
#[derive(Clone, Debug)]
pub struct Regions {
    region_of: BTreeMap<SubtaskId, usize>,
    members: Vec<BTreeSet<SubtaskId>>,
    /// Blocking edges between regions: (producer, consumer's region).
    inputs: Vec<BTreeSet<SubtaskId>>,
    consumers: Vec<BTreeSet<usize>>,
    strategy: FailoverStrategy,
}

impl Regions {
    /// The regions of `subtasks` under `edges`.
    pub fn new(
        subtasks: impl IntoIterator<Item = SubtaskId>,
        edges: &[Edge],
        strategy: FailoverStrategy,
    ) -> Self {
        let mut neighbours: BTreeMap<SubtaskId, Vec<SubtaskId>> =
            subtasks.into_iter().map(|subtask| (subtask, Vec::new())).collect();
        for edge in edges.iter().filter(|edge| edge.exchange == Exchange::Pipelined) {
            neighbours.entry(edge.producer).or_default().push(edge.consumer);
            neighbours.entry(edge.consumer).or_default().push(edge.producer);
        }
        let (mut region_of, mut members) = (BTreeMap::new(), Vec::new());
        for start in neighbours.keys() {
            if region_of.contains_key(start) {
                continue;
            }
            let (mut region, mut open) = (BTreeSet::new(), vec![*start]);
            while let Some(subtask) = open.pop() {
                if region.insert(subtask) {
                    region_of.insert(subtask, members.len());
                    open.extend(&neighbours[&subtask]);
                }
            }
            members.push(region);
        }
        let mut inputs = vec![BTreeSet::new(); members.len()];
        let mut consumers = vec![BTreeSet::new(); members.len()];
        for edge in edges {
            let (from, to) = (region_of[&edge.producer], region_of[&edge.consumer]);
            if from != to {
                inputs[to].insert(edge.producer);
                consumers[from].insert(to);
            }
        }
        Self { region_of, members, inputs, consumers, strategy }
    }

    /// Everybody who restarts if these fail; `is_lost` tells producers whose blocking result is gone.
    pub fn tasks_to_restart(
        &self,
        failed: impl IntoIterator<Item = SubtaskId>,
        is_lost: impl Fn(SubtaskId) -> bool,
    ) -> BTreeSet<SubtaskId> {
        let mut open: Vec<usize> = failed
            .into_iter()
            .filter_map(|subtask| self.region_of.get(&subtask).copied())
            .collect();
        match self.strategy {
            FailoverStrategy::Full if !open.is_empty() => open = (0..self.members.len()).collect(),
            FailoverStrategy::Full | FailoverStrategy::Region => {}
        }
        let mut regions = BTreeSet::new();
        while let Some(region) = open.pop() {
            if regions.insert(region) {
                let lost = self.inputs[region].iter().filter(|producer| is_lost(**producer));
                open.extend(lost.map(|producer| self.region_of[producer]));
                open.extend(&self.consumers[region]);
            }
        }
        regions.into_iter().flat_map(|region| self.members[region].iter().copied()).collect()
    }

    /// Which region a subtask is in.
    pub fn region_of(&self, subtask: SubtaskId) -> Option<usize> {
        self.region_of.get(&subtask).copied()
    }

    /// How many regions there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(producer: (u32, u32), consumer: (u32, u32), exchange: Exchange) -> Edge {
        let subtask = |(vertex, index)| SubtaskId::new(vertex, index);
        Edge { producer: subtask(producer), consumer: subtask(consumer), exchange }
    }

    fn subtasks() -> Vec<SubtaskId> {
        (0..3).flat_map(|vertex| (0..2).map(move |index| SubtaskId::new(vertex, index))).collect()
    }

    /// Two pipelined pairs 0 -> 1, each read by both subtasks of 2 as a blocking result.
    fn regions(strategy: FailoverStrategy) -> Regions {
        let mut edges = Vec::new();
        for i in 0..2 {
            edges.push(edge((0, i), (1, i), Exchange::Pipelined));
            edges.extend((0..2).map(|j| edge((1, i), (2, j), Exchange::Blocking)));
        }
        Regions::new(subtasks(), &edges, strategy)
    }

    #[test]
    fn a_region_and_its_consumers_restart() {
        let regions = regions(FailoverStrategy::Region);
        assert_eq!(regions.count(), 4);
        let restarted = regions.tasks_to_restart([SubtaskId::new(0, 0)], |_| false);
        let expected = [(0, 0), (1, 0), (2, 0), (2, 1)].map(|(v, i)| SubtaskId::new(v, i));
        assert_eq!(restarted, BTreeSet::from(expected));
        let last = regions.tasks_to_restart([SubtaskId::new(2, 1)], |_| false);
        assert_eq!(last, BTreeSet::from([SubtaskId::new(2, 1)]), "its input is still there");
    }

    #[test]
    fn a_producer_whose_result_is_gone_restarts_too() {
        let lost = SubtaskId::new(1, 1);
        let restarted = regions(FailoverStrategy::Region)
            .tasks_to_restart([SubtaskId::new(2, 0)], |producer| producer == lost);
        let expected = [(0, 1), (1, 1), (2, 0), (2, 1)].map(|(v, i)| SubtaskId::new(v, i));
        assert_eq!(restarted, BTreeSet::from(expected));
    }

    #[test]
    fn the_full_strategy_restarts_everything() {
        let all =
            regions(FailoverStrategy::Full).tasks_to_restart([SubtaskId::new(2, 0)], |_| false);
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn a_pipelined_shuffle_is_one_region() {
        let mut edges = Vec::new();
        for i in 0..2 {
            edges.extend((0..2).map(|j| edge((0, i), (1, j), Exchange::Pipelined)));
        }
        let regions = Regions::new(subtasks(), &edges, FailoverStrategy::Region);
        assert_eq!(regions.count(), 3, "vertex 2 is connected to nothing");
        assert_eq!(regions.tasks_to_restart([SubtaskId::new(0, 0)], |_| false).len(), 4);
    }
}
