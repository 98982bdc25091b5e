//! The head that reads an input.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use super::head::{Driven, Head, HeadSource};
use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::{Data, Feed, Output};
use crate::sink::Readiness;
use crate::source::{Poll, Reader, ReaderContext, Source, Split};
use crate::state::part::{PartKind, encode_list};

/// The recipe of a chain that begins at a source.
#[derive(Clone, Debug)]
pub struct FromSource<S> {
    pub(crate) name: String,
    pub(crate) source: S,
}

impl<S: Source> Chain for FromSource<S> {
    type Out = S::Out;

    fn attach<D: Op<S::Out>>(self, down: D, build: &mut Build) -> Result<()> {
        let restored = build.restored_checkpoint().is_some();
        let splits = if restored {
            let parts = build.restored_parts(&self.name).iter();
            let positions = parts.filter(|part| part.kind == PartKind::Position);
            let mut splits = Vec::new();
            for part in positions {
                splits.extend(part.list()?.into_iter().map(Split));
            }
            splits
        } else {
            build.splits.remove(&self.name).unwrap_or_default()
        };
        let context = ReaderContext {
            name: &self.name,
            subtask: build.subtask(),
            parallelism: build.parallelism,
        };
        let reader =
            self.source.open(splits, context).map_err(|error| error.in_operator(&self.name))?;
        let name: Rc<str> = self.name.into();
        build.heads.push(Head::Source(Box::new(SourceHead { name, reader, down })));
        Ok(())
    }

    fn describe(&self, stage: &mut Stage) {
        let source = Mutex::new(self.source.clone());
        let name = self.name.clone();
        let splits = move |parallelism| {
            let source = source.lock().unwrap_or_else(PoisonError::into_inner);
            source.splits(parallelism).map_err(|error| error.in_operator(&name))
        };
        stage.splits_of.push((self.name.clone(), Arc::new(splits)));
        stage.names.push(self.name.clone());
        stage.operators.push(format!("source '{}'", self.name));
        stage.has_state = true;
    }
}

struct SourceHead<R, D> {
    name: Rc<str>,
    reader: R,
    down: D,
}

/// One poll of a reader as a feed.
struct ReaderFeed<'r, R> {
    reader: &'r mut R,
    limit: usize,
    now: Timestamp,
    records: &'r mut usize,
    outcome: &'r mut Result<Poll>,
}

impl<R: Reader> Feed<R::Out> for ReaderFeed<'_, R> {
    #[inline(always)]
    fn each<G: for<'x> FnMut(<R::Out as Data>::Ref<'x>)>(self, mut g: G) {
        let mut records = 0;
        *self.outcome = self.reader.poll(
            self.limit,
            self.now,
            &mut Output::new(&mut |record| {
                records += 1;
                g(record);
            }),
        );
        *self.records = records;
    }
}

impl<R: Reader, D: Op<R::Out>> Driven for SourceHead<R, D> {
    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.down.ready(now)
    }

    fn batch_max(&self) -> usize {
        self.down.batch_max()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        if let Signal::Snapshot(snapshot) = signal {
            let splits = self.reader.snapshot();
            let bytes = encode_list(splits.iter().map(|split| split.0.as_slice()));
            snapshot.inline(&self.name, PartKind::Position, "splits", bytes);
        }
        self.down.signal(signal)
    }
}

impl<R: Reader, D: Op<R::Out>> HeadSource for SourceHead<R, D> {
    fn poll(&mut self, limit: usize, now: Timestamp) -> Result<(Poll, usize)> {
        let mut records = 0;
        let mut outcome = Ok(Poll::Ready);
        let reader = &mut self.reader;
        let feed = ReaderFeed { reader, limit, now, records: &mut records, outcome: &mut outcome };
        self.down.batch(feed);
        outcome.map(|poll| (poll, records)).map_err(|error| error.in_operator(&*self.name))
    }
}
