//! Pictures of a graph as text: Mermaid, which many pages render, and DOT.

use super::Graph;
use super::edges::Cause;
use super::node::NodeKind;
use std::collections::BTreeSet;
use std::fmt::Write;

impl Graph {
    /// The graph as a Mermaid flowchart: a shape for each kind of node, solid arrows with the buffers that cause them, dotted
    /// arrows for dependencies that are only declared. The text is deterministic, also for a graph with a cycle.
    pub fn to_mermaid(&self) -> String {
        // Everything that Mermaid could take for markup becomes a character code.
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

    /// The graph in the language of Graphviz, with the same content as [`to_mermaid`](Self::to_mermaid).
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

/// The text with `code` in the place of each special character.
fn escape(text: &str, special: &str, code: fn(char) -> String) -> String {
    let escape = |c: char| match c {
        c if special.contains(c) => code(c),
        c if c.is_control() => " ".into(),
        c => c.into(),
    };
    text.chars().map(escape).collect()
}
