//! Ways to the decoders inside, for those who feed them bytes from anywhere.
//!
//! Each function reads what was never promised to be right and answers with what the encoder makes of it, so that
//! reading the answer again must answer the same. Only with the feature `simulation`; used by the fuzz targets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::record::codec::{append, check_frame, read_frame};
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{Data, Key, Output};
use crate::source::{LineFormat, ReaderContext, Source};
use crate::state::block_io::BlockReader;
use crate::state::memory::MemoryStore;
use crate::state::store::{ObjectName, SnapshotStore};
use crate::state::{self, Table, TableOptions, Value, small_file_again};

#[cfg(feature = "rest")]
pub use crate::rest::query_decoded;
pub use crate::runtime::event_again;
pub use crate::sink::{part_name, prepared_again, prepared_sample};
pub use crate::source::{LineSeen, lines_of};
pub use crate::time::pane_again;

/// Whole frames of `T`, one after the other.
///
/// # Errors
/// The bytes are no such frames.
pub fn frames<T: Data>(bytes: &[u8]) -> Result<Vec<u8>> {
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        let frame = &bytes[at..];
        let n = check_frame::<T>(frame)
            .map_err(|bad| Error::new(ErrorKind::Checkpoint, format!("byte {at}: {bad:?}")))?;
        append::<T>(&mut out, read_frame::<T>(frame));
        if n == 0 {
            return Err(Error::new(ErrorKind::Checkpoint, "a frame without bytes"));
        }
        at += n;
    }
    Ok(out)
}

/// Records as frames, one after the other.
pub fn written<T: Data>(records: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        append::<T>(&mut out, record.view());
    }
    out
}

/// Shows the frames of `T` that `bytes` begin with.
pub fn each_frame<T: Data>(mut bytes: &[u8], mut each: impl FnMut(T::Ref<'_>)) {
    while let Ok(n) = check_frame::<T>(bytes) {
        each(read_frame::<T>(bytes));
        if n == 0 {
            return;
        }
        bytes = &bytes[n..];
    }
}

/// The blocks of a file: origin and payload of each, until the first that is wrong.
///
/// # Errors
/// Names the first wrong byte.
pub fn blocks(bytes: &[u8], mut each: impl FnMut(state::block::BlockOrigin, &[u8])) -> Result<()> {
    let store = MemoryStore::new();
    let name = ObjectName::parse("chk-1/data-0")?;
    store.put(&name, bytes)?;
    let mut reader = BlockReader::whole(store.open(&name)?, Path::new("data-0"));
    while let Some(block) = reader.read_block()? {
        each(block.head.origin, block.payload);
    }
    Ok(())
}

/// What one of the small files of a checkpoint directory says: `OWNER`, `NEXT-ID` or `ENDED`; `None` if it is not there.
///
/// # Errors
/// It says something else.
pub fn small_file(name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let store: Arc<dyn SnapshotStore> = Arc::new(MemoryStore::new());
    store.put(&ObjectName::parse(name)?, bytes)?;
    small_file_again(&*store, name)
}

/// A source's splits after it was opened on `splits` and read nothing.
///
/// # Errors
/// They are none of this source's.
pub fn splits_again<S: Source>(
    source: &S,
    splits: Vec<crate::source::Split>,
) -> Result<Vec<crate::source::Split>> {
    use crate::source::Reader;
    let context = ReaderContext { name: "fuzzed", subtask: 0, parallelism: 1 };
    Ok(source.open(splits, context)?.snapshot())
}

/// The records that a format makes of one line, each shown to `each`.
///
/// # Errors
/// The line is none.
pub fn line<L: LineFormat>(
    format: &mut L,
    line: &str,
    mut each: impl for<'a> FnMut(<L::Out as Data>::Ref<'a>),
) -> Result<()> {
    format
        .record(line, &mut Output::new(&mut each))
        .map_err(|error| Error::new(ErrorKind::Record, format!("{error:?}")))
}

/// The format of lines of JSON.
#[cfg(feature = "json")]
pub fn json_format<T: serde::de::DeserializeOwned + crate::record::AsData + 'static>()
-> impl LineFormat<Out = T::Data> {
    crate::source::Json::<T>::new()
}

/// Keys and values as frames, from what `bytes` begin with; a later value of a key replaces an earlier one.
pub fn pairs<K: Data, V: Data>(mut bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    fn take<T: Data>(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
        let n = check_frame::<T>(bytes).ok()?;
        let mut frame = Vec::new();
        append::<T>(&mut frame, read_frame::<T>(bytes));
        Some((frame, &bytes[n..]))
    }
    let mut pairs = BTreeMap::new();
    while !bytes.is_empty()
        && let Some((key, behind)) = take::<K>(bytes)
        && let Some((value, behind)) = take::<V>(behind)
    {
        pairs.insert(key, value);
        bytes = behind;
    }
    pairs
}

/// Restores a keyed table from a block and answers with the blocks of its snapshot.
///
/// # Errors
/// The block is not whole entries of these types.
pub fn table_again<K: Key, V: Value>(block: &[u8], init: V) -> Result<Vec<Vec<u8>>> {
    let groups = KeyGroups::at_least(128);
    let mut table = Table::<K, V>::new(TableOptions::small(groups), init);
    table.restore(block, KeyGroupRange { first: 0, end: groups.count() })?;
    let mut blocks = Vec::new();
    table.snapshot().write(&mut |_, bytes: &[u8]| {
        blocks.push(bytes.to_vec());
        Ok(())
    })?;
    Ok(blocks)
}
