//! What is shown while a job runs: a bar on a terminal, a line every few seconds elsewhere. On standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// What is shown.
#[derive(Debug)]
pub struct Progress {
    shown_as: ShownAs,
    begun: Instant,
}

#[derive(Debug)]
enum ShownAs {
    Bar(ProgressBar),
    Lines { next: Duration },
    Nothing,
}

impl Progress {
    /// A bar if standard error is a terminal, else lines; nothing if `is_quiet`.
    pub fn new(is_quiet: bool) -> Self {
        let shown_as = if is_quiet {
            ShownAs::Nothing
        } else if stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}");
            bar.set_style(style.expect("the template is right"));
            ShownAs::Bar(bar)
        } else {
            ShownAs::Lines { next: LINE_EVERY }
        };
        Self { shown_as, begun: Instant::now() }
    }

    /// Shows how far the job is.
    pub fn show(&mut self, records: u64, checkpoints: u64) {
        let elapsed = self.begun.elapsed();
        let rate = records as f64 / elapsed.as_secs_f64().max(1e-9);
        let message = format!("{records} records, {rate:.0}/s, {checkpoints} checkpoints");
        match &mut self.shown_as {
            ShownAs::Bar(bar) => {
                bar.set_message(message);
                bar.tick();
            }
            ShownAs::Lines { next } if *next <= elapsed => {
                *next = elapsed + LINE_EVERY;
                eprintln!("{:.0} s: {message}", elapsed.as_secs_f64());
            }
            ShownAs::Lines { .. } | ShownAs::Nothing => {}
        }
    }

    /// Takes the bar away.
    pub fn end(self) {
        if let ShownAs::Bar(bar) = self.shown_as {
            bar.finish_and_clear();
        }
    }
}
