//! Progress of a validation: a bar on a terminal, a line for each claim elsewhere. Both on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiln_validate::Progress;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

pub(super) struct ProgressReporter {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl ProgressReporter {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { bar, began: Instant::now() }
    }

    pub(super) fn report(&mut self, progress: &Progress<'_>) {
        let Progress { done, steps, next, device, .. } = *progress;
        if next.is_empty() {
            return;
        }
        let what = if device.is_empty() { next.to_string() } else { format!("{next} on {device}") };
        let message = format!("{what}{}", left(self.began.elapsed(), done, steps));
        match &self.bar {
            Some(bar) => {
                bar.set_length(steps as u64);
                bar.set_position(done as u64);
                bar.set_message(message);
            }
            // A closed standard error is not an error.
            None => _ = writeln!(io::stderr(), "{} of {steps}: {message}", done + 1),
        }
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Formats the estimated remaining time; empty for the first few steps.
fn left(passed: Duration, done: usize, steps: usize) -> String {
    // Two steps are too few for an estimate.
    if done < 3 {
        return String::new();
    }
    let seconds = passed.as_secs_f64() / done as f64 * steps.saturating_sub(done) as f64;
    format!(
        ", about {} left",
        if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_what_is_done() {
        assert_eq!(left(Duration::from_secs(5), 2, 20), "");
        assert_eq!(left(Duration::from_secs(5), 5, 20), ", about 15 s left");
        assert_eq!(left(Duration::from_secs(100), 10, 40), ", about 5 min left");
        assert_eq!(left(Duration::from_secs(100), 10, 10), ", about 0 s left");
    }
}
