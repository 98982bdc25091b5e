//! Records shown to a closure, and records dropped.

use std::fmt;
use std::marker::PhantomData;

use super::{Committable, Sink, Writer, WriterContext};
use crate::error::Result;
use crate::record::{Data, Feed};

/// A sink that calls `f` with each record; every subtask has a clone. At least once: after a restart records since the
/// last checkpoint are shown again.
///
/// Name the record type: `for_each::<u64, _>(|n| …)`.
pub fn for_each<T: Data, F>(f: F) -> ForEach<T, F>
where
    F: for<'a> FnMut(T::Ref<'a>) + Clone + Send + 'static,
{
    ForEach { f, of: PhantomData }
}

/// See [`for_each`].
pub struct ForEach<T, F> {
    f: F,
    of: PhantomData<fn(T)>,
}

impl<T, F: Clone> Clone for ForEach<T, F> {
    fn clone(&self) -> Self {
        Self { f: self.f.clone(), of: PhantomData }
    }
}

impl<T, F> fmt::Debug for ForEach<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForEach").finish_non_exhaustive()
    }
}

impl<T: Data, F> Sink<T> for ForEach<T, F>
where
    F: for<'a> FnMut(T::Ref<'a>) + Clone + Send + 'static,
{
    type Writer = EachWriter<F>;

    fn open(
        &self,
        _prepared: Vec<Committable>,
        _context: WriterContext<'_>,
    ) -> Result<Self::Writer> {
        Ok(EachWriter { f: self.f.clone() })
    }
}

/// Shows one subtask's records of a [`ForEach`].
pub struct EachWriter<F> {
    f: F,
}

impl<F> fmt::Debug for EachWriter<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachWriter").finish_non_exhaustive()
    }
}

impl<T: Data, F> Writer<T> for EachWriter<F>
where
    F: for<'a> FnMut(T::Ref<'a>) + 'static,
{
    #[inline(always)]
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        (self.f)(record);
        Ok(())
    }

    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) -> Result<()> {
        let f = &mut self.f;
        feed.each(f);
        Ok(())
    }
}

/// A sink that drops all records.
pub fn discard() -> Discard {
    Discard
}

/// See [`discard`].
#[derive(Clone, Copy, Debug)]
pub struct Discard;

impl<T: Data> Sink<T> for Discard {
    type Writer = Self;

    fn open(&self, _prepared: Vec<Committable>, _context: WriterContext<'_>) -> Result<Self> {
        Ok(Self)
    }
}

impl<T: Data> Writer<T> for Discard {
    #[inline(always)]
    fn write(&mut self, _record: T::Ref<'_>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Numbers(u64);
    impl Feed<u64> for Numbers {
        fn each<G: for<'x> FnMut(u64)>(self, g: G) {
            (0..self.0).for_each(g);
        }
    }

    #[test]
    fn each_record_is_shown_and_none_to_nobody() {
        let sum = Arc::new(AtomicU64::new(0));
        let adds = Arc::clone(&sum);
        let sink = for_each::<u64, _>(move |n| {
            adds.fetch_add(n, Ordering::Relaxed);
        });
        let context = WriterContext {
            name: "sink",
            subtask: 0,
            parallelism: 1,
            attempt: crate::id::Attempt(0),
            restored: None,
        };
        let mut writer = sink.open(Vec::new(), context).expect("opens");
        Writer::<u64>::batch(&mut writer, Numbers(5)).expect("writes");
        Writer::<u64>::write(&mut writer, 7).expect("writes");
        assert_eq!(sum.load(Ordering::Relaxed), 17);
        let mut nobody = Sink::<u64>::open(&discard(), Vec::new(), context).expect("opens");
        Writer::<u64>::batch(&mut nobody, Numbers(5)).expect("writes");
    }
}
