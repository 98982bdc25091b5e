//! Any serde type as a record.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::Codec;
use super::{AsData, Data};
use crate::error::{Error, ErrorKind, Result};

/// A value of a serde type as a record, in postcard's encoding.
///
/// It is encoded when it is made and decoded whenever it is looked at: 20 to 60 ns each, where a derived record costs
/// a few. Prefer `#[derive(Data)]` for what is hot.
pub struct Serde<T> {
    bytes: Bytes,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize> Serde<T> {
    /// Encodes a value.
    ///
    /// # Errors
    /// Its `Serialize` fails, or does what postcard can't represent, such as a sequence of unknown length.
    pub fn new(value: &T) -> Result<Self> {
        let bytes = postcard::to_stdvec(value).map_err(|error| wrong::<T>("encode", error))?;
        Ok(Self { bytes: bytes.into(), of: PhantomData })
    }
}

impl<T: DeserializeOwned> Serde<T> {
    /// Decodes the value.
    ///
    /// # Errors
    /// As [`SerdeRef::get`].
    pub fn get(&self) -> Result<T> {
        SerdeRef { bytes: &self.bytes, of: PhantomData }.get()
    }
}

impl<T> Clone for Serde<T> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), of: PhantomData }
    }
}

impl<T> PartialEq for Serde<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> fmt::Debug for Serde<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Serde<{}>({} bytes)", type_name::<T>(), self.bytes.len())
    }
}

/// The view of a [`Serde`]: decoded on demand.
pub struct SerdeRef<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SerdeRef<'_, T> {
    /// Decodes the value.
    ///
    /// # Errors
    /// Its `Deserialize` does not take what its `Serialize` made, or the bytes come from another version of the type.
    pub fn get(self) -> Result<T> {
        let (value, rest) =
            postcard::take_from_bytes(self.bytes).map_err(|error| wrong::<T>("decode", error))?;
        if rest.is_empty() {
            return Ok(value);
        }
        Err(wrong::<T>("decode", postcard::Error::SerdeDeCustom))
    }
}

impl<T> Clone for SerdeRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SerdeRef<'_, T> {}

impl<T> fmt::Debug for SerdeRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SerdeRef<{}>({} bytes)", type_name::<T>(), self.bytes.len())
    }
}

#[cold]
fn wrong<T>(what: &str, error: postcard::Error) -> Error {
    Error::new(ErrorKind::Record, format!("can't {what} a {}: {error}", type_name::<T>()))
        .caused_by(error)
}

impl<T: 'static> AsData for Serde<T> {
    type Data = Self;
    fn view(&self) -> SerdeRef<'_, T> {
        SerdeRef { bytes: &self.bytes, of: PhantomData }
    }
}

impl<T: 'static> AsData for SerdeRef<'_, T> {
    type Data = Serde<T>;
    fn view(&self) -> SerdeRef<'_, T> {
        *self
    }
}

impl<T: 'static> Data for Serde<T> {
    type Ref<'a> = SerdeRef<'a, T>;
    type Codec = Bytes;
    #[inline(always)]
    fn encode<'a>(view: Self::Ref<'a>) -> <Bytes as Codec>::Ref<'a> {
        view.bytes
    }
    #[inline(always)]
    fn decode<'a>(raw: <Bytes as Codec>::Ref<'a>) -> Self::Ref<'a> {
        SerdeRef { bytes: raw, of: PhantomData }
    }
    fn own(view: SerdeRef<'_, T>) -> Self {
        Self { bytes: Bytes::copy_from_slice(view.bytes), of: PhantomData }
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: SerdeRef<'long, T>) -> SerdeRef<'short, T> {
        view
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::codec::{append, check_frame, read_frame};
    use super::*;

    type Value = BTreeMap<String, Vec<Option<(u8, String)>>>;

    #[test]
    fn a_serde_type_crosses_as_bytes() {
        let value = Value::from([("k".to_owned(), vec![None, Some((7, "ß".to_owned()))])]);
        let record = Serde::new(&value).expect("encodes");
        let mut bytes = Vec::new();
        append::<Serde<Value>>(&mut bytes, record.view());
        assert_eq!(check_frame::<Serde<Value>>(&bytes), Ok(bytes.len()));
        let read = read_frame::<Serde<Value>>(&bytes);
        assert_eq!(read.get().expect("decodes"), value);
        assert_eq!(Serde::own(read), record);
        assert_eq!(record.get().expect("decodes"), value);
    }

    #[test]
    fn bytes_of_another_type_are_an_error_that_names_the_type() {
        let wrong = Serde::<Value> {
            bytes: Serde::new(&"text that is no map").expect("encodes").bytes,
            of: PhantomData,
        };
        let error = wrong.get().expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::Record);
        assert!(error.to_string().contains("BTreeMap"), "{error}");
        let longer = Serde::<u8> { bytes: Bytes::from_static(&[1, 2]), of: PhantomData };
        assert!(longer.get().is_err(), "bytes are left");
    }
}
