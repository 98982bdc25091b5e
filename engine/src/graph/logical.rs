//! Joins stages into vertices, puts them in order and checks the whole before anything starts.

use std::collections::{BTreeMap, BTreeSet};

use super::execution::{EdgePlan, ExecutionGraph, VertexPlan};
use super::stages::StageEntry;
use crate::error::{Error, Result};
use crate::id::VertexId;
use crate::operator::EdgeKind;
use crate::record::key_group::KeyGroups;

/// The most subtasks a vertex may have.
pub(crate) const PARALLELISM_MAX: u32 = 4096;

/// Makes the execution graph.
///
/// # Errors
/// `Config`: no stage, a name used twice, a stream that ends nowhere, contradicting or impossible parallelism.
pub(crate) fn execution_graph(
    stages: &[StageEntry],
    parallelism: u32,
    max_parallelism: u32,
) -> Result<ExecutionGraph> {
    if stages.is_empty() {
        return Err(Error::config("the job has no sink"));
    }
    check_parallelism("parallelism.default", parallelism, max_parallelism)?;
    check_names(stages)?;
    let members = members(stages)?;
    let mut vertices = Vec::new();
    for members in &members {
        vertices.push(vertex(stages, members, parallelism, max_parallelism)?);
    }
    let edges = edges(stages, &members)?;
    order(vertices, edges, KeyGroups::at_least(max_parallelism))
}

fn check_parallelism(what: &str, parallelism: u32, max: u32) -> Result<()> {
    if parallelism == 0 {
        return Err(Error::config(format!("{what} is 0; it is at least 1")));
    }
    if parallelism > max.min(PARALLELISM_MAX) {
        let max = max.min(PARALLELISM_MAX);
        return Err(Error::config(format!(
            "{what} is {parallelism}; parallelism.max allows {max}"
        )));
    }
    Ok(())
}

fn check_names(stages: &[StageEntry]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in stages.iter().flat_map(|entry| &entry.stage.names) {
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return Err(Error::config(format!(
                "{name:?} is no name: 1 to 200 characters, none of them a control character"
            )));
        }
        if !seen.insert(name) {
            return Err(Error::config(format!(
                "the name '{name}' is used twice; sources, stateful operators and sinks need names of their own"
            )));
        }
    }
    Ok(())
}

/// Stages that run in one task: those joined by side outputs.
fn members(stages: &[StageEntry]) -> Result<Vec<Vec<usize>>> {
    let mut root: Vec<usize> = (0..stages.len()).collect();
    fn find(root: &[usize], mut at: usize) -> usize {
        while root[at] != at {
            at = root[at];
        }
        at
    }
    let mut filled = BTreeMap::new();
    for (index, entry) in stages.iter().enumerate() {
        for &split in &entry.stage.splits {
            filled.insert(split, index);
        }
    }
    let mut ended = BTreeSet::new();
    for (index, entry) in stages.iter().enumerate() {
        for inlet in &entry.stage.inlets {
            let Some(&by) = filled.get(inlet) else {
                return Err(Error::config(
                    "a side output is read, but the stream that fills it ends nowhere",
                ));
            };
            ended.insert(*inlet);
            let (a, b) = (find(&root, index), find(&root, by));
            root[a.max(b)] = a.min(b);
        }
    }
    if filled.keys().any(|split| !ended.contains(split)) {
        return Err(Error::config(
            "a side output ends nowhere: give it a sink, `sink::discard()` if it is not wanted",
        ));
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in 0..stages.len() {
        groups.entry(find(&root, index)).or_default().push(index);
    }
    Ok(groups.into_values().collect())
}

fn vertex(
    stages: &[StageEntry],
    members: &[usize],
    default_parallelism: u32,
    max_parallelism: u32,
) -> Result<VertexPlan> {
    let mut plan = VertexPlan {
        id: VertexId(0),
        name: "".into(),
        operators: Vec::new(),
        names: Vec::new(),
        parallelism: default_parallelism,
        sources: Vec::new(),
        checks: Vec::new(),
        retracts: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        has_state: false,
        commits: false,
        emits_on_commit: false,
        attach: Vec::new(),
    };
    let mut asked = BTreeSet::new();
    let mut emitting = 0;
    for &member in members {
        let StageEntry { stage, attach } = &stages[member];
        plan.operators.extend(stage.operators.iter().cloned());
        plan.names.extend(stage.names.iter().cloned());
        plan.sources.extend(stage.splits_of.iter().cloned());
        plan.checks.extend(stage.checks.iter().cloned());
        plan.retracts.extend(stage.retracts.iter().cloned());
        plan.reads.extend(&stage.reads);
        plan.writes.extend(stage.writes.iter().map(|(edge, _)| *edge));
        plan.has_state |= stage.has_state;
        plan.commits |= stage.commits;
        emitting += stage.emits_on_commit;
        asked.extend(&stage.parallelism);
        plan.attach.push(attach.clone());
    }
    plan.name = plan.operators.join(" > ").into();
    plan.emits_on_commit = emitting > 0;
    if emitting > 0 && (plan.commits || emitting > 1) {
        // The last checkpoint lets the first of them go on; what it emits then would need one more.
        return Err(Error::config(format!(
            "'{}' runs in one task, but what goes on after a commit can't be committed there again: put an exchange between, \
             such as `rebalance` or `key_by`",
            plan.name
        )));
    }
    if asked.len() > 1 {
        return Err(Error::config(format!(
            "'{}' runs in one task, but different parallelisms are asked for: {asked:?}",
            plan.name
        )));
    }
    if let Some(&parallelism) = asked.first() {
        check_parallelism(
            &format!("the parallelism of '{}'", plan.name),
            parallelism,
            max_parallelism,
        )?;
        plan.parallelism = parallelism;
    }
    Ok(plan)
}

/// An edge with vertices by their place in `members`.
struct Wire {
    edge: usize,
    from: usize,
    to: usize,
    kind: EdgeKind,
}

fn edges(stages: &[StageEntry], members: &[Vec<usize>]) -> Result<Vec<Wire>> {
    let vertex_of = |stage: usize| {
        members.iter().position(|m| m.contains(&stage)).expect("every stage is in a vertex")
    };
    let mut readers = BTreeMap::new();
    for (index, entry) in stages.iter().enumerate() {
        for &edge in &entry.stage.reads {
            readers.insert(edge, vertex_of(index));
        }
    }
    let mut wires = Vec::new();
    for (index, entry) in stages.iter().enumerate() {
        for &(edge, kind) in &entry.stage.writes {
            let Some(&to) = readers.get(&edge) else {
                return Err(Error::config(format!(
                    "the stream behind '{}' ends nowhere: give it a sink",
                    entry.stage.operators.join(" > ")
                )));
            };
            wires.push(Wire { edge, from: vertex_of(index), to, kind });
        }
    }
    Ok(wires)
}

/// Numbers vertices so that each comes behind all that feed it.
fn order(
    vertices: Vec<VertexPlan>,
    wires: Vec<Wire>,
    key_groups: KeyGroups,
) -> Result<ExecutionGraph> {
    let mut waiting: Vec<Option<VertexPlan>> = vertices.into_iter().map(Some).collect();
    let mut numbers = vec![None; waiting.len()];
    let mut ordered: Vec<VertexPlan> = Vec::new();
    while ordered.len() < waiting.len() {
        let next = (0..waiting.len()).find(|&at| {
            waiting[at].is_some()
                && wires.iter().all(|wire| wire.to != at || numbers[wire.from].is_some())
        });
        let Some(at) = next else {
            return Err(Error::config("the job's streams form a loop"));
        };
        let mut vertex = waiting[at].take().expect("it was just seen to be there");
        vertex.id = VertexId(ordered.len() as u32);
        numbers[at] = Some(vertex.id);
        ordered.push(vertex);
    }
    let number = |at: usize| numbers[at].expect("all are numbered");
    let mut edges: Vec<EdgePlan> = wires
        .iter()
        .map(|wire| EdgePlan {
            edge: wire.edge,
            from: number(wire.from),
            to: number(wire.to),
            kind: wire.kind,
        })
        .collect();
    edges.sort_by_key(|edge| (edge.to, edge.edge));
    Ok(ExecutionGraph { vertices: ordered, edges, key_groups })
}
