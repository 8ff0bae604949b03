//! Findings of the sanitizer.

use std::fmt;

/// Maximum number of distinct findings in a list. Further ones are dropped.
const MAX_FINDINGS: usize = 256;

/// Kind of a finding.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// An index is beyond the end of an array or buffer.
    OutOfBounds,
    /// Two invocations access the same memory, one of them writes, and no barrier orders them.
    Race,
    /// A read of memory that was never written. WGSL defines it as zeros, which is rarely intended. A vector or
    /// struct that is read as a whole counts as written once any part of it is.
    Uninitialised,
    /// Invocations of a workgroup diverge around a barrier.
    DivergentBarrier,
    /// An operation on operands without NaN produced NaN, and the NaN was stored, or influenced a branch, an index
    /// or another stored value.
    NotANumber,
}

impl FindingKind {
    /// Returns the short name used in reports.
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

/// Identifies an invocation of a dispatch.
///
/// See the [crate documentation](crate) for an example.
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
        write!(f, "invocation ({x}, {y}, {z}) of workgroup ({group_x}, {group_y}, {group_z})")
    }
}

/// A fault of a kernel. The fields describe its first occurrence.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Kind of fault.
    pub kind: FindingKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Line in the source, from 1; 0 if unknown.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// The variable, if there is one.
    pub variable: Option<String>,
    /// The element of the variable, if it is an array.
    pub index: Option<u64>,
    /// Number of elements, if the index is out of bounds.
    pub length: Option<u64>,
    /// The invocation that made the access; of two, the later one.
    pub invocation: Invocation,
    /// The other invocation, if two are involved.
    pub other: Option<Invocation>,
    /// The line of the other access, if known.
    pub other_line: Option<u32>,
    /// A sentence that describes the finding.
    pub message: String,
    /// How often it was seen.
    pub count: u64,
}

impl Finding {
    /// Adds a finding to a list, or increments the count of a known one. A list has at most 256 entries.
    pub fn add(findings: &mut Vec<Self>, finding: Self) {
        // A linear search is enough for at most `MAX_FINDINGS` entries.
        match findings.iter().position(|known| known.is_same_fault(&finding)) {
            Some(i) => findings[i].count += finding.count,
            None if findings.len() < MAX_FINDINGS => findings.push(finding),
            None => {}
        }
    }

    /// Whether both are the same fault. The two lines of a race may be in either order.
    fn is_same_fault(&self, other: &Self) -> bool {
        let location = |finding: &Self| {
            let other = finding.other_line.unwrap_or(finding.line);
            match finding.kind {
                FindingKind::Race => (finding.line.min(other), finding.line.max(other), 0),
                _ => (finding.line, other, finding.column),
            }
        };
        (self.kind, &self.kernel, &self.variable) == (other.kind, &other.kernel, &other.variable)
            && location(self) == location(other)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, kernel, line, column, message, count, .. } = self;
        write!(f, "{kernel}:{line}:{column}: {kind}: {message}")?;
        if *count > 1 { write!(f, " ({count} times)") } else { Ok(()) }
    }
}
