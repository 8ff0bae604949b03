//! Computes and prints one result with candle.

use candle_core::{Device, Result, Tensor};

fn main() -> Result<()> {
    let two = Tensor::new(&[2f32], &Device::Cpu)?;
    let sum = (two + 3.0)?.to_vec1::<f32>()?;
    println!("{}", sum[0]);
    Ok(())
}
