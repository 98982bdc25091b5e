//! A job's plan for people: chains, edges and parallelism, as text and as DOT.

use std::fmt;

use super::execution::ExecutionGraph;

/// What a job will run as. `Display` is text; [`Plan::dot`] is for Graphviz.
#[derive(Clone, Debug)]
pub struct Plan {
    vertices: Vec<(String, u32)>,
    edges: Vec<(u32, u32, String)>,
}

impl Plan {
    pub(crate) fn new(graph: &ExecutionGraph) -> Self {
        Self {
            vertices: graph.vertices.iter().map(|v| (v.name.to_string(), v.parallelism)).collect(),
            edges: graph
                .edges
                .iter()
                .map(|edge| (edge.from.0, edge.to.0, edge.kind.to_string()))
                .collect(),
        }
    }

    /// The plan in the DOT language.
    pub fn dot(&self) -> String {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let mut dot = String::from("digraph job {\n  rankdir=LR;\n  node [shape=box];\n");
        for (id, (name, parallelism)) in self.vertices.iter().enumerate() {
            dot.push_str(&format!("  v{id} [label=\"{} x{parallelism}\"];\n", escaped(name)));
        }
        for (from, to, kind) in &self.edges {
            dot.push_str(&format!("  v{from} -> v{to} [label=\"{}\"];\n", escaped(kind)));
        }
        dot.push_str("}\n");
        dot
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, (name, parallelism)) in self.vertices.iter().enumerate() {
            writeln!(f, "v{id} x{parallelism}: {name}")?;
            for (from, to, kind) in &self.edges {
                if *from == id as u32 {
                    writeln!(f, "  -> v{to} ({kind})")?;
                }
            }
        }
        Ok(())
    }
}
