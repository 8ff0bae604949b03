//! Two small networks learn 1,437 handwritten digits and are asked for 360 others.
//!
//! ```sh
//! cargo run --release -p kiln --example digits
//! cargo run --release -p kiln --example digits -- --net conv --dtype f16 --svg digits.svg
//! cargo run --release -p kiln --example digits -- --epochs 1000 --metrics digits.json    # meanwhile: kiln top file:digits.json
//! ```

#![expect(clippy::print_stdout, reason = "a program that shows something")]

mod learn;

use indicatif::{ProgressBar, ProgressStyle};
use kiln::{DType, Device};
use learn::{Net, Training};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

const HELP: &str = "Trains small networks on handwritten digits.

Options:
  --net mlp|conv     one network instead of both
  --dtype f32|f16    one dtype instead of both; f16 has parameters of f32
  --device NAME      cpu (default), gpu
  --epochs COUNT     how often each image is seen (default: 20)
  --seed NUMBER      of the order of images and of the parameters (default: 1)
  --svg FILE         where the curves of the losses go (default: digits.svg)
  --metrics FILE     where metrics go after each epoch, for `kiln top file:FILE` if the name ends in .json";

struct Options {
    nets: Vec<Net>,
    dtypes: Vec<DType>,
    device: String,
    epochs: u64,
    seed: u64,
    svg: PathBuf,
    metrics: Option<PathBuf>,
}

/// The options, or what is wrong with them.
fn options() -> Result<Options, String> {
    let mut options = Options {
        nets: vec![Net::Mlp, Net::Conv],
        dtypes: vec![DType::F32, DType::F16],
        device: "cpu".to_string(),
        epochs: 20,
        seed: 1,
        svg: PathBuf::from("digits.svg"),
        metrics: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--help" || name == "-h" {
            return Err(HELP.to_string());
        }
        let value = arguments.next().ok_or_else(|| format!("{name} expected a value, found none\n\n{HELP}"))?;
        let wrong = |wanted: &str| format!("{name} expected {wanted}, found {value}\n\n{HELP}");
        match name.as_str() {
            "--net" => {
                options.nets = vec![match value.as_str() {
                    "mlp" => Net::Mlp,
                    "conv" => Net::Conv,
                    _ => return Err(wrong("mlp or conv")),
                }];
            }
            "--dtype" => {
                options.dtypes = vec![match value.as_str() {
                    "f32" => DType::F32,
                    "f16" => DType::F16,
                    _ => return Err(wrong("f32 or f16")),
                }];
            }
            "--device" if ["cpu", "gpu"].contains(&value.as_str()) => options.device = value,
            "--device" => return Err(wrong("cpu or gpu")),
            "--epochs" => options.epochs = value.parse().map_err(|_| wrong("a number"))?,
            "--seed" => options.seed = value.parse().map_err(|_| wrong("a number"))?,
            "--svg" => options.svg = PathBuf::from(value),
            "--metrics" => options.metrics = Some(PathBuf::from(value)),
            _ => return Err(format!("expected an option, found {name}\n\n{HELP}")),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            println!("{message}");
            std::process::exit(if message == HELP { 0 } else { 2 });
        }
    };
    let device = if options.device == "gpu" { Device::gpu(0)? } else { Device::cpu()? };
    // For `kiln profile`.
    kiln::observe::watch_from_settings(&device, |name| std::env::var(name).ok())?;
    #[cfg(feature = "events")]
    let write_metrics = {
        let (watch, path) = (kiln::metrics::Watch::new(), options.metrics.as_deref());
        if path.is_some() {
            watch.add(&device);
        }
        move || path.map_or(Ok(()), |path| watch.write_file(path))
    };
    #[cfg(not(feature = "events"))]
    let write_metrics = || match &options.metrics {
        Some(_) => Err(kiln::Error::new(kiln::ErrorKind::Unsupported, "--metrics expected the feature `events`")),
        None => Ok(()),
    };
    let mut curves = Vec::new();
    for &net in &options.nets {
        for &dtype in &options.dtypes {
            curves.push((format!("{net:?} {dtype}"), train(net, dtype, &options, &device, &write_metrics)?));
        }
    }
    std::fs::write(&options.svg, plot(&curves))?;
    println!("curves of the losses: {}", Path::new(&options.svg).display());
    Ok(())
}

/// Trains one network; returns its losses.
fn train(
    net: Net,
    dtype: DType,
    options: &Options,
    device: &Device,
    after_epoch: &dyn Fn() -> kiln::Result<()>,
) -> kiln::Result<Vec<f32>> {
    let mut training = Training::new(net, dtype, options.epochs, options.seed, device)?;
    let bar = ProgressBar::new(options.epochs);
    let style = ProgressStyle::with_template("{prefix:10} {wide_bar} {pos}/{len}  loss {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(format!("{net:?} {dtype}"));
    let start = Instant::now();
    let mut losses = Vec::new();
    for _ in 0..options.epochs {
        losses.push(training.epoch()?);
        bar.set_message(format!("{:.4}", losses[losses.len() - 1]));
        bar.inc(1);
        after_epoch()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    println!(
        "{:10} loss {:.4}  right {:.2} % of the test  {seconds:.2} s, {:.1} ms an epoch",
        format!("{net:?} {dtype}"),
        losses.last().copied().unwrap_or(f32::NAN),
        100.0 * training.accuracy()?,
        1e3 * seconds / options.epochs.max(1) as f64,
    );
    Ok(losses)
}

/// The losses over the epochs, one line each, on a scale of powers of ten.
fn plot(curves: &[(String, Vec<f32>)]) -> String {
    const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];
    let all = || curves.iter().flat_map(|(_, losses)| losses.iter().copied().filter(|loss| *loss > 0.0));
    let (least, most) = (all().fold(1.0f32, f32::min).log10().floor(), all().fold(1.0f32, f32::max).log10().ceil());
    let epochs = curves.iter().map(|(_, losses)| losses.len()).max().unwrap_or(1).max(2);
    let x = |epoch: usize| 60.0 + 560.0 * epoch as f32 / (epochs - 1) as f32;
    let y = |power: f32| 340.0 - 300.0 * (power - least) / (most - least).max(1.0);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 390\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"760\" height=\"390\" fill=\"white\"/>\n",
    );
    let mut power = least;
    while power <= most {
        let y = y(power);
        let _ = writeln!(svg, "<path d=\"M60 {y:.1}H620\" stroke=\"#ddd\"/>");
        let _ = writeln!(svg, "<text x=\"52\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", y + 4.0, 10f32.powf(power));
        power += 1.0;
    }
    let _ = writeln!(svg, "<text x=\"340\" y=\"375\" text-anchor=\"middle\">epoch, of {epochs}</text>");
    let _ = writeln!(svg, "<text x=\"60\" y=\"24\">mean loss of an epoch</text>");
    for (number, (name, losses)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = losses
            .iter()
            .enumerate()
            .filter(|(_, loss)| **loss > 0.0)
            .map(|(epoch, loss)| format!("{:.1},{:.1}", x(epoch), y(loss.log10())))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        let _ = writeln!(svg, "<text x=\"630\" y=\"{}\" fill=\"{colour}\">{name}</text>", 60 + 20 * number);
    }
    svg + "</svg>\n"
}
