//! Tensors of indices in `Tensor::i`, against loops over coordinates.

use crate::devices;
use kiln::{Device, Ellipsis, ErrorKind, NewAxis, Result, Slice, Tensor};

/// `(2, 3, 4)`, where the element `(a, b, c)` is `100 a + 10 b + c`.
fn cube(device: &Device) -> Result<Tensor> {
    let numbers: Vec<f32> = (0..24).map(|n| (100 * (n / 12) + 10 * (n / 4 % 3) + n % 4) as f32).collect();
    Tensor::from_slice(&numbers, (2, 3, 4), device)
}

fn expect(result: Result<Tensor>, dims: &[usize], elements: impl IntoIterator<Item = i32>, context: &str) {
    let result = result.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(result.dims(), dims, "{context}");
    let elements: Vec<f32> = elements.into_iter().map(|element| element as f32).collect();
    assert_eq!(result.to_vec::<f32>().unwrap(), elements, "{context}");
}

#[test]
fn tensors_of_indices_are_broadcast_together() -> Result<()> {
    for subject in devices::all() {
        let (name, device) = (subject.name, &subject.device);
        let x = cube(device)?;
        let first = Tensor::new([1u32, 0, 1], device)?;
        let second = Tensor::new([2i32, 0, 1], device)?;
        let third = Tensor::new([3u32, 3, 0], device)?;
        // Pairs, not all combinations; numbers, slices and ellipses on the other axes.
        let pairs = [(1, 2), (0, 0), (1, 1)];
        let rows = pairs.iter().flat_map(|(a, b)| (0..4).map(move |c| 100 * a + 10 * b + c));
        expect(x.i((&first, &second)), &[3, 4], rows, name);
        expect(x.i((&first, &second, &third)), &[3], [123, 3, 110], name);
        expect(x.i((&first, &second, 2)), &[3], [122, 2, 112], name);
        expect(x.i((1, &second, &third)), &[3], [123, 103, 110], name);
        let rest = (0..2).flat_map(|a| [(2, 3), (0, 3), (1, 0)].map(move |(b, c)| 100 * a + 10 * b + c));
        expect(x.i((.., &second, &third)), &[2, 3], rest.clone(), name);
        expect(x.i((Ellipsis, &second, &third)), &[2, 3], rest, name);
        // Not adjacent: their axes come first, as in NumPy.
        let split = [(1, 3), (0, 3), (1, 0)].iter().flat_map(|(a, c)| (0..3).map(move |b| 100 * a + 10 * b + c));
        expect(x.i((&first, .., &third)), &[3, 3], split, name);
        let new = x.i((&first, NewAxis, &second, ..1));
        expect(new, &[3, 1, 1], [120, 0, 110], name);
        // A number removes only its axis, as in PyTorch.
        expect(x.i((&first, 1, &third)), &[3], [113, 13, 110], name);
        // Another order of the tensor's elements.
        expect(x.permute([2, 1, 0])?.i((&third, &second, &first)), &[3], [123, 3, 110], name);
        expect(x.i((Slice::new(..).step(-1), &second, &third)), &[2, 3], [123, 103, 110, 23, 3, 10], name);
    }
    Ok(())
}

#[test]
fn indices_have_any_shape() -> Result<()> {
    for subject in devices::all() {
        let (name, device) = (subject.name, &subject.device);
        let x = cube(device)?;
        let column = Tensor::new([[2u32], [0]], device)?;
        let row = Tensor::new([1u32, 3, 0], device)?;
        expect(x.i((0, &column, &row)), &[2, 3], [21, 23, 20, 1, 3, 0], name);
        let flat = (0..2).flat_map(|a| [20, 0].map(move |b| 100 * a + b));
        expect(x.i((.., &column, 0)), &[2, 2, 1], flat, name);
        let one = Tensor::new(2u32, device)?;
        expect(x.i((0, &one)), &[4], 20..24, name);
        expect(x.i((0, &one, &row)), &[3], [21, 23, 20], name);
        let none = row.slice(0, 0..0)?;
        expect(x.i((&none, &none)), &[0, 4], [], name);
    }
    Ok(())
}

/// An index that is out of range on its own axis never becomes another element.
#[test]
fn indices_out_of_range_are_errors_or_zeros() -> Result<()> {
    for subject in devices::all() {
        let device = &subject.device;
        let x = cube(device)?;
        let zero = Tensor::new([0u32, 1], device)?;
        for wrong in [Tensor::new([0u32, 3], device)?, Tensor::new([0i32, -1], device)?] {
            let found = x.i((&zero, &wrong, 1))?.to_vec::<f32>();
            match found {
                Ok(found) if subject.takes_wgsl => assert_eq!(found, [1.0, 0.0], "{}", subject.name),
                Ok(found) => panic!("{}: expected an error, found {found:?}", subject.name),
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
            }
        }
    }
    Ok(())
}
