use kiln::{DType, Device, Tensor};
use std::time::Instant;
fn main() -> kiln::Result<()> {
    let device = Device::cpu()?;
    let only: Vec<String> = std::env::args().skip(1).collect();
    for n in [1usize << 20, 16 << 20] {
        for dtype in [DType::F32, DType::F16] {
            let mk = |s: f32| -> kiln::Result<Tensor> {
                let v: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - s).collect();
                let t = Tensor::from_slice(&v, n, &device)?.to_dtype(dtype)?;
                t.eval()?;
                Ok(t)
            };
            let (a, b, c) = (mk(1.0)?, mk(0.7)?, mk(0.3)?);
            type F<'a> = Box<dyn Fn() -> kiln::Result<Tensor> + 'a>;
            let works: Vec<(&str, F)> = vec![
                ("add", Box::new(|| a.add(&b))),
                ("muladdrelu", Box::new(|| a.mul(&b)?.add(&c)?.relu())),
                ("chain8", Box::new(|| a.mul(&b)?.add_scalar(0.5)?.sub(&a)?.abs()?.mul_scalar(1.5)?.maximum(&b)?.neg()?.relu())),
                ("gelu", Box::new(|| a.gelu())),
                ("exp", Box::new(|| a.exp())),
                ("tanh", Box::new(|| a.tanh())),
                ("sum", Box::new(|| a.sum_all())),
            ];
            for (name, f) in &works {
                if !only.is_empty() && !only.iter().any(|o| o == name) { continue }
                let mut times = vec![];
                let reps = if n > 1 << 21 { 25 } else { 300 };
                for _ in 0..reps {
                    let t = Instant::now();
                    let r = f()?;
                    r.eval()?;
                    times.push(t.elapsed().as_secs_f64() * 1e3);
                    drop(r);
                }
                times.sort_by(f64::total_cmp);
                println!("{name:12} {dtype} {:3}M min {:.4} p25 {:.4} median {:.4} ms", n >> 20, times[0], times[times.len() / 4], times[times.len() / 2]);
            }
        }
    }
    Ok(())
}
