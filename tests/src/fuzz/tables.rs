//! Blocks of keyed state.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate::decoders;
use tidegate::record::Key;
use tidegate::state::{Blob, Value};

use super::{Seed, accept};

/// A table that takes a block holds each key with its last value, and writes that; it takes none that is not whole.
fn again<K: Key, V: Value>(bytes: &[u8], init: V) {
    let Ok(blocks) = decoders::table_again::<K, V>(bytes, init) else { return };
    accept();
    let mut written = BTreeMap::new();
    for block in &blocks {
        let pairs = decoders::pairs::<K, V::Wire>(block);
        let before = written.len();
        let count = pairs.len();
        written.extend(pairs);
        assert_eq!(written.len(), before + count, "a key is written twice");
    }
    assert_eq!(written, decoders::pairs::<K, V::Wire>(bytes));
}

/// Each table reads the bytes as its own.
pub(super) fn tables(bytes: &[u8]) {
    again::<u64, u64>(bytes, 0);
    again::<String, (u64, bool)>(bytes, (0, false));
    again::<String, Blob>(bytes, Blob::default());
    again::<(u32, String), Blob>(bytes, Blob::default());
}

pub(super) fn seeds() -> Vec<Seed> {
    let blob = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let text = |text: &str| text.to_owned();
    let long = text("a key of more than fifteen bytes");
    vec![
        ("numbers", decoders::written(&[(1u64, 10u64), (2, 20), (1, 30)])),
        ("texts", {
            let keys = [text(""), text("a"), long.clone()];
            let mut block = Vec::new();
            for key in keys {
                block.extend(decoders::written(&[key]));
                block.extend(decoders::written(&[(7u64, true)]));
            }
            block
        }),
        ("blobs", {
            let mut block = Vec::new();
            for (key, value) in
                [(text("a"), blob(b"")), (long, blob(b"value")), (text("a"), blob(b"x"))]
            {
                block.extend(decoders::written(&[key]));
                block.extend(decoders::written(&[value]));
            }
            block
        }),
    ]
}
