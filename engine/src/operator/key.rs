//! How a record's key is found: by a closure that returns an owned key, or one that borrows it from the record.

use std::fmt;
use std::marker::PhantomData;

use crate::record::{AsData, Data, Key};

/// Finds a record's key.
pub trait KeyFn<T: Data>: Clone + Send + 'static {
    /// The key's type.
    type Key: Key;

    /// Shows the record's key to `g`.
    #[doc(hidden)]
    fn with<O>(&self, record: T::Ref<'_>, g: impl FnOnce(<Self::Key as Data>::Ref<'_>) -> O) -> O;
}

/// A closure that returns an owned key.
pub struct OwnedKey<F, R>(F, PhantomData<fn() -> R>);

impl<F, R> OwnedKey<F, R> {
    pub(crate) fn new(f: F) -> Self {
        Self(f, PhantomData)
    }
}

impl<F: Clone, R> Clone for OwnedKey<F, R> {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl<F, R> fmt::Debug for OwnedKey<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedKey")
    }
}

impl<T: Data, R, F> KeyFn<T> for OwnedKey<F, R>
where
    R: AsData<Data: Key> + 'static,
    F: for<'a> Fn(T::Ref<'a>) -> R + Clone + Send + 'static,
{
    type Key = R::Data;

    #[inline(always)]
    fn with<O>(&self, record: T::Ref<'_>, g: impl FnOnce(<R::Data as Data>::Ref<'_>) -> O) -> O {
        g((self.0)(record).view())
    }
}

/// A closure that borrows the key from the record.
pub struct BorrowedKey<F, K>(F, PhantomData<fn() -> K>);

impl<F, K> BorrowedKey<F, K> {
    pub(crate) fn new(f: F) -> Self {
        Self(f, PhantomData)
    }
}

impl<F: Clone, K> Clone for BorrowedKey<F, K> {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl<F, K> fmt::Debug for BorrowedKey<F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BorrowedKey")
    }
}

impl<T: Data, K: Key, F> KeyFn<T> for BorrowedKey<F, K>
where
    F: for<'a> Fn(&'a T::Ref<'a>) -> K::Ref<'a> + Clone + Send + 'static,
{
    type Key = K;

    #[inline(always)]
    fn with<O>(&self, record: T::Ref<'_>, g: impl FnOnce(K::Ref<'_>) -> O) -> O {
        g((self.0)(&T::shorten(record)))
    }
}
