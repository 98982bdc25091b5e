//! Lines on standard output.
//!
//! At least once: lines appear when they are written, so a restart writes those since the last checkpoint again. Lines
//! of several subtasks are not mixed within a line.

use std::fmt::Display;
use std::io::{self, Write};

use super::{Committable, Sink, Writer, WriterContext};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::record::Data;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// A sink that prints each record's view, displayed, as a line.
pub fn stdout() -> Stdout {
    Stdout
}

/// See [`stdout`].
#[derive(Clone, Copy, Debug)]
pub struct Stdout;

impl<T: Data> Sink<T> for Stdout
where
    for<'a> T::Ref<'a>: Display,
{
    type Writer = StdoutWriter<io::Stdout>;

    fn open(
        &self,
        _prepared: Vec<Committable>,
        _context: WriterContext<'_>,
    ) -> Result<Self::Writer> {
        Ok(StdoutWriter { lines: Vec::new(), to: io::stdout() })
    }
}

/// Prints one subtask's lines of a [`Stdout`].
#[derive(Debug)]
pub struct StdoutWriter<W> {
    /// Whole lines that are not written yet.
    lines: Vec<u8>,
    to: W,
}

impl<W: Write> StdoutWriter<W> {
    fn print(&mut self) -> Result<()> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("can't write to standard output: {error}"))
                .caused_by(error)
        };
        self.to.write_all(&self.lines).and_then(|()| self.to.flush()).map_err(failed)?;
        self.lines.clear();
        Ok(())
    }
}

impl<T: Data, W: Write + 'static> Writer<T> for StdoutWriter<W>
where
    for<'a> T::Ref<'a>: Display,
{
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        writeln!(self.lines, "{record}").map_err(|error| {
            Error::new(ErrorKind::Record, "can't format a record").caused_by(error)
        })?;
        if self.lines.len() >= BUFFER_BYTES { self.print() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.lines.is_empty() { Ok(()) } else { self.print() }
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        Writer::<T>::flush(self).map(|()| Vec::new())
    }

    fn finish(&mut self, _checkpointed: bool) -> Result<()> {
        Writer::<T>::flush(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_out_after_a_flush_a_checkpoint_and_the_end() {
        let mut writer = StdoutWriter { lines: Vec::new(), to: Vec::new() };
        Writer::<String>::write(&mut writer, "a").expect("writes");
        assert!(writer.to.is_empty(), "gathered");
        Writer::<String>::flush(&mut writer).expect("flushes");
        Writer::<String>::write(&mut writer, "ß").expect("writes");
        Writer::<String>::prepare(&mut writer, CheckpointId(1)).expect("prepares");
        Writer::<String>::write(&mut writer, "").expect("writes");
        Writer::<String>::finish(&mut writer, true).expect("finishes");
        assert_eq!(writer.to, "a\nß\n\n".as_bytes());
        for _ in 0..BUFFER_BYTES {
            Writer::<String>::write(&mut writer, "x").expect("writes");
        }
        assert_eq!(writer.to.len(), 6 + 2 * BUFFER_BYTES, "a full buffer is written");
    }

    #[test]
    fn an_output_that_is_closed_is_an_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writer = StdoutWriter { lines: Vec::new(), to: Closed };
        Writer::<u64>::write(&mut writer, 1).expect("is gathered");
        assert_eq!(
            Writer::<u64>::flush(&mut writer).expect_err("is refused").kind(),
            ErrorKind::Io
        );
    }
}
