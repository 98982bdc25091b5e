//! Numbers and byte strings in a row: how splits, committables and other small things lie in a checkpoint.
//!
//! Each thing begins with a version byte of its own. What is read back is untrusted: every read may fail, none
//! panics. Called by sources and sinks.

use crate::error::{Error, ErrorKind, Result};

/// Appends a number.
pub(crate) fn put_u64(to: &mut Vec<u8>, n: u64) {
    to.extend_from_slice(&n.to_le_bytes());
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Reads what was put, in the same order.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Fields<'a> {
    /// The fields behind a version byte that must be `version`; `what` names the thing in errors.
    pub(crate) fn versioned(bytes: &'a [u8], version: u8, what: &'static str) -> Result<Self> {
        match bytes.split_first() {
            Some((&found, rest)) if found == version => Ok(Self { rest, what }),
            Some((&found, _)) => Err(Error::new(
                ErrorKind::Checkpoint,
                format!("{what} has format {found}, and only format {version} is known"),
            )),
            None => Err(Error::new(ErrorKind::Checkpoint, format!("{what} is empty"))),
        }
    }

    /// The next number.
    pub(crate) fn u64(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    /// The next number, which must fit into 32 bits.
    pub(crate) fn u32(&mut self) -> Result<u32> {
        let n = self.u64()?;
        u32::try_from(n).map_err(|_| self.malformed())
    }

    /// The next byte string.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.u64()?;
        let n = usize::try_from(n).map_err(|_| self.malformed())?;
        self.take(n)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }

    /// The error of a thing that is not what was put.
    pub(crate) fn malformed(&self) -> Error {
        Error::new(ErrorKind::Checkpoint, format!("{} is malformed", self.what))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.malformed())?;
        self.rest = rest;
        Ok(front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order_and_every_truncation_is_refused() {
        let mut bytes = vec![3];
        put_u64(&mut bytes, 7);
        put_bytes(&mut bytes, b"abc");
        let read = |bytes: &[u8]| -> Result<(u64, Vec<u8>)> {
            let mut fields = Fields::versioned(bytes, 3, "a thing")?;
            let found = (fields.u64()?, fields.bytes()?.to_vec());
            fields.end()?;
            Ok(found)
        };
        assert_eq!(read(&bytes).expect("reads"), (7, b"abc".to_vec()));
        for n in 0..bytes.len() {
            assert_eq!(read(&bytes[..n]).expect_err("is refused").kind(), ErrorKind::Checkpoint);
        }
        bytes.push(0);
        assert!(read(&bytes).is_err(), "trailing bytes");
        assert!(read(&[4]).expect_err("is refused").to_string().contains("format 4"));
    }
}
