//! The head behind an exchange without keys: hands the records of its buffers to the chain.

use std::marker::PhantomData;

use tidegate_netstack::buffer::Buffer;

use super::exchange::Exchange;
use super::head::{Driven, Head, HeadInput, Taken};
use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ChannelIndex;
use crate::record::codec::{Frames, check_frames};
use crate::record::{Data, Feed};
use crate::sink::Readiness;

impl<T: Data> Chain for Exchange<T> {
    type Out = T;

    fn attach<D: Op<T>>(self, down: D, build: &mut Build) -> Result<()> {
        let input = Box::new(Forward { down, of: PhantomData::<fn() -> T> });
        build.heads.push(Head::Gate { edge: self.edge, input });
        Ok(())
    }

    fn describe(&self, stage: &mut Stage) {
        stage.reads.push(self.edge);
    }
}

/// The head.
#[derive(Debug)]
pub struct Forward<T, D> {
    down: D,
    of: PhantomData<fn() -> T>,
}

struct ForwardFeed<'f, 'b, T> {
    frames: &'f mut Frames<'b, T>,
    limit: usize,
    records: &'f mut usize,
}

impl<T: Data> Feed<T> for ForwardFeed<'_, '_, T> {
    #[inline(always)]
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, mut g: G) {
        while *self.records < self.limit {
            // Keyed and other channels have one frame layout, so that a checkpoint's buffers need no mark.
            let Some((frame, _)) = self.frames.next_hashed() else { break };
            g(frame.read());
            *self.records += 1;
        }
    }
}

impl<T: Data, D: Op<T>> Driven for Forward<T, D> {
    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.down.ready(now)
    }
    fn batch_max(&self) -> usize {
        self.down.batch_max()
    }
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        self.down.signal(signal)
    }
}

impl<T: Data, D: Op<T>> HeadInput for Forward<T, D> {
    fn take(&mut self, _: ChannelIndex, buffer: &Buffer, from: usize, limit: usize) -> Taken {
        let mut frames = Frames::<T>::new(buffer.as_slice(), from);
        let mut records = 0;
        self.down.batch(ForwardFeed { frames: &mut frames, limit, records: &mut records });
        Taken { next: frames.offset(), records }
    }

    fn check(&self, frames: &[u8]) -> Result<()> {
        check_frames::<T>(frames)
            .map_err(|bad| Error::new(ErrorKind::Checkpoint, format!("a buffer in flight: {bad}")))
    }
}
