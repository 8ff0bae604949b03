//! Renders a graph as text: Mermaid and Graphviz DOT.

use super::Graph;
use super::edges::Cause;
use super::node::NodeKind;
use std::collections::BTreeSet;
use std::fmt::Write;

impl Graph {
    /// Renders the graph as a Mermaid flowchart.
    ///
    /// Each kind of node has its own shape. Solid arrows are labelled with the buffers that cause the dependency;
    /// dotted arrows are dependencies that are only declared. The text is deterministic, also for a graph with a cycle.
    pub fn to_mermaid(&self) -> String {
        // Characters that Mermaid could interpret as markup are written as character codes.
        let escape = |text: &str| escape(text, "\"#&<>`\\|", |c| format!("#{};", c as u32));
        let mut text = String::from("flowchart TD\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let (open, close) = match node.kind {
                NodeKind::Commands => ("[", "]"),
                NodeKind::Copy => ("[/", "/]"),
                NodeKind::Host => ("([", "])"),
            };
            let (name, kind) = (escape(&node.name), node.kind);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    n{index}{open}\"{name}<br/>{kind}\"{close}");
        }
        for ((from, to), causes) in self.edges() {
            let arrow = if is_only_declared(&causes) { "-.->" } else { "-->" };
            let label = escape(&self.label(&causes));
            let _ = writeln!(text, "    n{from} {arrow}|\"{label}\"| n{to}");
        }
        text
    }

    /// Renders the graph in the DOT language of Graphviz, with the same content as [`to_mermaid`](Self::to_mermaid).
    pub fn to_dot(&self) -> String {
        let escape = |text: &str| escape(text, "\"\\", |c| format!("\\{c}"));
        let mut text = String::from("digraph plan {\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let shape = match node.kind {
                NodeKind::Commands => "box",
                NodeKind::Copy => "parallelogram",
                NodeKind::Host => "ellipse",
            };
            let (name, kind) = (escape(&node.name), node.kind);
            let _ = writeln!(text, "    n{index} [shape={shape}, label=\"{name}\\n{kind}\"];");
        }
        for ((from, to), causes) in self.edges() {
            let style = if is_only_declared(&causes) { ", style=dashed" } else { "" };
            let label = escape(&self.label(&causes));
            let _ = writeln!(text, "    n{from} -> n{to} [label=\"{label}\"{style}];");
        }
        text.push_str("}\n");
        text
    }

    fn label(&self, causes: &BTreeSet<Cause>) -> String {
        let causes: Vec<String> = causes.iter().map(|cause| cause.describe(&self.buffers)).collect();
        causes.join(", ")
    }
}

fn is_only_declared(causes: &BTreeSet<Cause>) -> bool {
    causes.iter().all(|cause| *cause == Cause::Declared)
}

/// Replaces each special character by `code`, and control characters by spaces.
fn escape(text: &str, special: &str, code: fn(char) -> String) -> String {
    let escape = |c: char| match c {
        c if special.contains(c) => code(c),
        c if c.is_control() => " ".into(),
        c => c.into(),
    };
    text.chars().map(escape).collect()
}
