//! All frames of a zstd file, one after the other, with their checksums compared.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// An uncompressed zstd file. A truncated one ends in an error, not early.
pub(super) struct Zstd {
    source: BufReader<File>,
    decoder: FrameDecoder,
    /// Within a frame.
    is_open: bool,
}

impl Zstd {
    pub(super) fn new(file: File) -> Self {
        Self {
            source: BufReader::with_capacity(64 << 10, file),
            decoder: FrameDecoder::new(),
            is_open: false,
        }
    }

    /// Begins the next frame; `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.is_open = false;
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(stored), Some(found)) if stored != found => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a zstd frame's checksum is wrong"))
            }
            _ => Ok(()),
        }
    }
}

impl Read for Zstd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_open {
                self.is_open = self.next_frame()?;
                if !self.is_open {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let n = self.decoder.read(into)?;
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                self.end_frame()?;
            }
            if n > 0 {
                return Ok(n);
            }
        }
    }
}
