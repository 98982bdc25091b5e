//! Events for `tracing`: what a subscriber hears of a job.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::{sink, source};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::rig::{Once, checkpointed};

/// Writes down each event as a line.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes all");
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn states_restarts_and_checkpoints_are_told_to_the_subscriber() {
    let heard = Heard::default();
    tracing::subscriber::with_default(heard.clone(), || {
        let job = checkpointed("traced", 1);
        let once = Once::default();
        let (sink, out) = sink::collect::<u64>();
        job.source("numbers", source::range(0..1000))
            .map(move |n| {
                assert!(n != 500 || !once.take(), "planned");
                n
            })
            .sink("out", sink);
        // Stepped here, so that control is on the thread that has the subscriber.
        let mut stepper = job.stepper().expect("it is right");
        while stepper.step().expect("it goes on") {
            // A job of another test that was the first to come to an event just when this subscriber was made has it taken for one
            // that nobody wants.
            tracing::callsite::rebuild_interest_cache();
        }
        assert_eq!(out.take().len(), 1000);
    });
    let heard = heard.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for part in [
        "INFO message=the job's state changed job=\"traced\" state=Running",
        "WARN message=an attempt failed; the job restarts job=\"traced\" restarts=1",
        "planned",
        "DEBUG message=a checkpoint was triggered job=\"traced\" checkpoint=",
        "DEBUG message=a checkpoint is complete job=\"traced\" checkpoint=",
        "state=Finished",
    ] {
        assert!(heard.iter().any(|line| line.contains(part)), "'{part}' in {heard:#?}");
    }
}
