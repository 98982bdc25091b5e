//! Alerts on accounts that make three failed attempts within a minute, and forgets what is older: keyed state and timers.
//!
//! Run with `cargo run -p tidegate --example process`.

use std::time::Duration;

use tidegate::clock::EpochMillis;
use tidegate::operator::{Context, Process, Timer};
use tidegate::state::ListState;
use tidegate::time::Watermarks;
use tidegate::{BoxError, Job, Output, sink, source};

const MINUTE: i64 = 60_000;

/// An attempt: the account, when, and whether it was let in.
type Attempt = (u64, i64, bool);

/// The failed attempts of each account in the last minute.
struct Alerts {
    failed: ListState<i64>,
}

impl Process<u64, Attempt> for Alerts {
    type Out = (u64, String);

    fn process(
        &mut self,
        (_, time, is_in): Attempt,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        if is_in {
            cx.list(&self.failed).clear();
            return Ok(());
        }
        cx.list(&self.failed).add(time);
        cx.set_event_timer(EpochMillis(time + MINUTE));
        let count = cx.list(&self.failed).iter().count();
        if count == 3 {
            out.emit((cx.key(), format!("{count} failed attempts until {time} ms")));
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        let since = timer.time.0 - MINUTE;
        let recent: Vec<i64> = cx.list(&self.failed).iter().filter(|at| *at > since).collect();
        cx.list(&self.failed).set(recent);
        Ok(())
    }
}

fn main() -> tidegate::Result<()> {
    let job = Job::new("alerts");
    let (alerts, found) = sink::collect();
    // Account 7 fails every ten seconds, the others now and then.
    let attempt = |i: u64| -> Attempt {
        let account = if i.is_multiple_of(10) { 7 } else { 100 + i % 50 };
        (account, 1000 * i as i64, account != 7 && !i.is_multiple_of(3))
    };
    job.source("attempts", source::generate(600, attempt))
        .watermarks(Watermarks::bounded_out_of_orderness(Duration::from_secs(5)), |(_, time, _)| {
            time
        })
        .key_by(|(account, ..)| account)
        .process("alerts", |states| Ok(Alerts { failed: states.list("failed")? }))
        .sink("found", alerts);
    job.run()?;
    for (account, alert) in found.take() {
        println!("account {account}: {alert}");
    }
    Ok(())
}
