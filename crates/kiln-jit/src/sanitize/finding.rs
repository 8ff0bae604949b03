//! What the sanitizer tells.

use std::fmt;

/// Findings of a list; faults beyond these are not told.
const MAX_FINDINGS: usize = 256;

/// What is wrong with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// An index beyond the end of an array or buffer.
    OutOfBounds,
    /// Two invocations touch the same memory, one of them writes, and no barrier is in between.
    Race,
    /// A read of memory that nothing was written to: WGSL says zeros, which is seldom what was meant. What is read whole, a vector or a
    /// struct, counts as written when a part of it is.
    Uninitialised,
    /// Invocations of a work-group go different ways around a barrier.
    DivergentBarrier,
    /// Arithmetic that made NaN of numbers, and the NaN reached memory, or decided a branch, an index or what was written.
    NotANumber,
}

impl FindingKind {
    /// A short name, as reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfBounds => "out-of-bounds",
            Self::Race => "race",
            Self::Uninitialised => "uninitialised",
            Self::DivergentBarrier => "divergent-barrier",
            Self::NotANumber => "nan",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An invocation of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invocation {
    /// `global_invocation_id`.
    pub global_id: [u32; 3],
    /// `local_invocation_index`.
    pub local_index: u32,
    /// `workgroup_id`.
    pub workgroup_id: [u32; 3],
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], [group_x, group_y, group_z]) = (self.global_id, self.workgroup_id);
        write!(f, "invocation ({x}, {y}, {z}) of work-group ({group_x}, {group_y}, {group_z})")
    }
}

/// Something that is wrong with a kernel, as it was seen the first time.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The line in its source, from 1; 0 where that is not known.
    pub line: u32,
    /// The column, in bytes from 1.
    pub column: u32,
    /// The variable, where there is one.
    pub variable: Option<String>,
    /// The element of it, where it is an array.
    pub index: Option<u64>,
    /// How many elements there are, where the index is beyond them.
    pub length: Option<u64>,
    /// The invocation that did it; of two, the one that came second.
    pub invocation: Invocation,
    /// The other one, where it takes two.
    pub other: Option<Invocation>,
    /// The line of what the other one did, where it is known.
    pub other_line: Option<u32>,
    /// One sentence about all this.
    pub message: String,
    /// How often it was seen.
    pub count: u64,
}

impl Finding {
    /// Adds a finding to a list, or counts it there. A list ends at some hundred.
    pub fn add(findings: &mut Vec<Self>, finding: Self) {
        match findings.iter().position(|known| known.is_same_fault(&finding)) {
            Some(place) => findings[place].count += finding.count,
            None if findings.len() < MAX_FINDINGS => findings.push(finding),
            None => {}
        }
    }

    /// Whether both are about the same kind of fault in the same place. A race is one fault whichever of its lines came first.
    fn is_same_fault(&self, other: &Self) -> bool {
        let place = |finding: &Self| {
            let other = finding.other_line.unwrap_or(finding.line);
            match finding.kind {
                FindingKind::Race => (finding.line.min(other), finding.line.max(other), 0),
                _ => (finding.line, other, finding.column),
            }
        };
        (self.kind, &self.kernel, &self.variable) == (other.kind, &other.kernel, &other.variable)
            && place(self) == place(other)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, kernel, line, column, message, count, .. } = self;
        write!(f, "{kernel}:{line}:{column}: {kind}: {message}")?;
        if *count > 1 { write!(f, " ({count} times)") } else { Ok(()) }
    }
}
