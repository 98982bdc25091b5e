//! A batch as internal iteration, and where user code emits.
//!
//! Neither an `Iterator` (it can't yield a view of an owned temporary) nor a push per record (it keeps the consumer's
//! state in memory): with a [`Feed`] the end of the chain owns the loop, and the compiler makes one loop of all.

use super::{AsData, Data};

/// The records of one batch, each shown to a closure in turn.
pub trait Feed<T: Data> {
    /// Shows each record to `g`.
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, g: G);
}

/// Where a closure emits.
///
/// What follows in the chain is behind `dyn` for the type checker only: it is made in the function that calls the
/// closure, so the compiler makes the call direct again.
pub struct Output<'o, T: Data> {
    to: &'o mut dyn for<'x> FnMut(T::Ref<'x>),
}

impl<'o, T: Data> Output<'o, T> {
    /// An output that shows what is emitted to `to`.
    #[inline(always)]
    pub fn new(to: &'o mut dyn for<'x> FnMut(T::Ref<'x>)) -> Self {
        Self { to }
    }

    /// Emits a record: the owned type, its view, or a tuple that mixes them.
    #[inline(always)]
    pub fn emit<R: AsData<Data = T>>(&mut self, record: R) {
        (self.to)(record.view());
    }

    /// Emits a view whose type is known.
    #[inline(always)]
    pub fn emit_ref(&mut self, view: T::Ref<'_>) {
        (self.to)(view);
    }
}

impl<T: Data> std::fmt::Debug for Output<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}
