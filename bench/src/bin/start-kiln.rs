//! Computes and prints one result with Kiln.

use kiln::{Device, Tensor};

fn main() -> kiln::Result<()> {
    let device = Device::cpu()?;
    let two = Tensor::from_slice(&[2.0f32], 1, &device)?;
    let sum = two.add_scalar(3.0)?.to_vec::<f32>()?;
    println!("{}", sum[0]);
    Ok(())
}
