//! Layout of buffer elements in kernel memory and in a file.

use kiln::kernel::{Binding, Scalar};

/// An element of a buffer. In memory a three-component vector is padded to four; a file has no padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// The axes that it adds to the shape in a file: `[3]` for a `vec3`, columns and rows for a matrix.
    pub(super) axes: Vec<u64>,
    /// Number of elements as a shape, if the kernel's type fixes it.
    pub(super) count: Option<Vec<u64>>,
    has_gaps: bool,
}

impl Element {
    /// Returns the element of a buffer. Structs have no axes: they accept any elements as raw data.
    pub(super) fn of(binding: &Binding) -> Self {
        if binding.scalar.is_none() {
            return Self { axes: Vec::new(), count: None, has_gaps: false };
        }
        let (element, count) = array(&binding.type_name).map_or_else(
            || (binding.type_name.as_str(), Some(Vec::new())),
            |(element, count)| (element, count.map(|count| vec![count])),
        );
        let (axes, has_gaps) = (axes(element), has_gaps(element));
        // A scalar is an array of one.
        let is_number = axes.is_empty() && count.as_deref() == Some(&[]);
        Self { axes, count: if is_number { Some(vec![1]) } else { count }, has_gaps }
    }

    /// Returns the size in memory for a size in a file; `None` on 64-bit overflow. A device binds multiples of
    /// four bytes, so it may exceed the size of the elements.
    pub(super) fn memory_bytes(&self, file_bytes: u64) -> Option<u64> {
        let bytes = if self.has_gaps { (file_bytes / 3).checked_mul(4)? } else { file_bytes };
        bytes.checked_next_multiple_of(4)
    }

    pub(super) fn to_memory(&self, mut data: Vec<u8>, scalar: Scalar) -> Vec<u8> {
        if self.has_gaps {
            let scalar = scalar.bytes() as usize;
            let mut memory = Vec::with_capacity(data.len() / 3 * 4);
            for vector in data.chunks_exact(3 * scalar) {
                memory.extend_from_slice(vector);
                memory.resize(memory.len() + scalar, 0);
            }
            data = memory;
        }
        data.resize(data.len().next_multiple_of(4), 0);
        data
    }

    /// Converts memory to file data of this size.
    pub(super) fn to_file(&self, mut memory: Vec<u8>, scalar: Scalar, file_bytes: u64) -> Vec<u8> {
        if self.has_gaps {
            let scalar = scalar.bytes() as usize;
            memory = memory.chunks_exact(4 * scalar).flat_map(|vector| &vector[..3 * scalar]).copied().collect();
        }
        memory.truncate(usize::try_from(file_bytes).unwrap_or(usize::MAX));
        memory
    }
}

/// Returns the element and the length of an array type; `None` for other types.
fn array(type_name: &str) -> Option<(&str, Option<u64>)> {
    let inner = type_name.strip_prefix("array<")?.strip_suffix('>')?;
    let with_length = inner.rsplit_once(", ").and_then(|(element, length)| Some((element, Some(length.parse().ok()?))));
    Some(with_length.unwrap_or((inner, None)))
}

fn axes(type_name: &str) -> Vec<u64> {
    if let Some((element, length)) = array(type_name) {
        return length.into_iter().chain(axes(element)).collect();
    }
    let lengths = type_name.strip_prefix("vec").or_else(|| type_name.strip_prefix("mat"));
    let lengths = lengths.and_then(|rest| rest.split('<').next()).into_iter().flat_map(|lengths| lengths.split('x'));
    lengths.filter_map(|length| length.parse().ok()).collect()
}

/// Returns whether it consists of padded three-component vectors, such as the columns of a matrix.
fn has_gaps(type_name: &str) -> bool {
    match array(type_name) {
        Some((element, _)) => has_gaps(element),
        None => !type_name.starts_with("atomic") && axes(type_name).last() == Some(&3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::kernel::BindingKind;

    fn element(type_name: &str, scalar: Option<Scalar>) -> Element {
        Element::of(&Binding {
            name: "x".to_string(),
            group: 0,
            binding: 0,
            kind: BindingKind::Read,
            type_name: type_name.to_string(),
            scalar,
            min_bytes: 4,
            stride_bytes: None,
            tail: None,
            layout: None,
            members: Vec::new(),
        })
    }

    #[test]
    fn types_tell_axes_gaps_and_lengths() {
        let table = [
            ("f32", vec![], false, Some(vec![1])),
            ("vec3<f32>", vec![3], true, Some(vec![])),
            ("array<f32>", vec![], false, None),
            ("array<atomic<u32>>", vec![], false, None),
            ("array<vec2<f32>>", vec![2], false, None),
            ("array<vec3<f16>>", vec![3], true, None),
            ("array<mat4x3<f32>>", vec![4, 3], true, None),
            ("array<mat3x2<f32>>", vec![3, 2], false, None),
            ("array<array<f32, 3>>", vec![3], false, None),
            ("array<array<vec3<f32>, 5>>", vec![5, 3], true, None),
            ("array<vec3<f32>, 9>", vec![3], true, Some(vec![9])),
            ("array<array<f32, 3>, 9>", vec![3], false, Some(vec![9])),
        ];
        for (type_name, axes, has_gaps, count) in table {
            let expected = Element { axes, count, has_gaps };
            assert_eq!(element(type_name, Some(Scalar::F32)), expected, "{type_name}");
        }
        assert_eq!(element("array<vec3s>", None), Element { axes: Vec::new(), count: None, has_gaps: false });
    }

    #[test]
    fn file_comes_back_from_memory() {
        let table = [
            ("array<f16>", Scalar::F16, 6, vec![1, 2, 3, 4, 5, 6, 0, 0]),
            ("array<vec3<f16>>", Scalar::F16, 12, vec![1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0]),
            ("array<vec3<f32>>", Scalar::F32, 12, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0]),
            ("array<vec2<f32>>", Scalar::F32, 8, vec![1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        for (type_name, scalar, bytes, memory) in table {
            let (element, data) = (element(type_name, Some(scalar)), (1..=bytes).collect::<Vec<u8>>());
            assert_eq!(element.memory_bytes(bytes.into()), Some(memory.len() as u64), "{type_name}");
            assert_eq!(element.to_memory(data.clone(), scalar), memory, "{type_name}");
            assert_eq!(element.to_file(memory, scalar, bytes.into()), data, "{type_name}");
        }
        assert_eq!(element("array<vec3<f32>>", Some(Scalar::F32)).memory_bytes(u64::MAX), None);
    }
}
