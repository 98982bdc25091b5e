//! Words of text: [`words`], the tokeniser of word counts.
//!
//! Splitting by a closure costs a branch a byte, which nobody predicts, and lower-casing an allocation a word. Here
//! eight bytes at a time are lower-cased and turned into bits, one a letter; what is left per word is to find the next
//! two edges in a mask. Bench: `words`.

use crate::record::words16;

/// Shows each maximal run of ASCII letters in `line`, lower-cased, to `word`.
///
/// All other characters separate words, also the letters that are not ASCII. Nothing is allocated, except for words of
/// more than 256 letters.
///
/// ```
/// let mut words = Vec::new();
/// tidegate::text::words("Don't panic, Zoë!", |word| words.push(word.to_owned()));
/// assert_eq!(words, ["don", "t", "panic", "zo"]);
/// ```
#[inline]
pub fn words(line: &str, mut word: impl FnMut(&str)) {
    let mut rest = line.as_bytes();
    while rest.len() > BUFFER_BYTES {
        // A piece ends where a word does; a piece that is one word goes the slow way.
        let in_buffer = &rest[..=BUFFER_BYTES];
        match in_buffer.iter().rposition(|byte| !byte.is_ascii_alphabetic()) {
            Some(end) => {
                piece(&rest[..end], &mut word);
                rest = &rest[end + 1..];
            }
            None => rest = long(rest, &mut word),
        }
    }
    piece(rest, &mut word);
}

/// So many bytes are lower-cased at a time, on the stack.
const BUFFER_BYTES: usize = 256;

/// Shows the words of at most `BUFFER_BYTES` bytes.
#[inline]
fn piece(text: &[u8], word: &mut impl FnMut(&str)) {
    let mut lower = [[0; 8]; BUFFER_BYTES / 8];
    let mut masks = [0u64; BUFFER_BYTES / 64];
    let (eights, rest) = text.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        let (bytes, bits) = lower_letters(u64::from_le_bytes(*eight));
        lower[index] = bytes.to_le_bytes();
        masks[index / 8] |= bits << (8 * (index % 8));
    }
    if !rest.is_empty() {
        let (bytes, bits) = lower_letters(words16(rest).0);
        lower[eights.len()] = bytes.to_le_bytes();
        masks[eights.len() / 8] |= bits << (8 * (eights.len() % 8));
    }
    let lower = &lower.as_flattened()[..text.len()];
    let lower = std::str::from_utf8(lower).expect("letters and zeros are ASCII");
    let mut start = None;
    let mut last_bit = 0;
    for (index, mask) in masks[..text.len().div_ceil(64)].iter().enumerate() {
        let mut edges = mask ^ (mask << 1 | last_bit);
        last_bit = mask >> 63;
        while edges != 0 {
            let edge = index * 64 + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            start = match start {
                None => Some(edge),
                Some(start) => {
                    word(&lower[start..edge]);
                    None
                }
            };
        }
    }
    if let Some(start) = start {
        word(&lower[start..]);
    }
}

/// Eight bytes with letters lower-cased and all else zero, and a bit for each letter.
#[inline(always)]
fn lower_letters(bytes: u64) -> (u64, u64) {
    const TOP: u64 = 0x8080_8080_8080_8080;
    const EACH: u64 = 0x0101_0101_0101_0101;
    let lower = bytes | (EACH * 0x20);
    // Without their top bits the sums of bytes stay in their bytes.
    let low = lower & !TOP;
    let from_a = low + EACH * (0x80 - b'a' as u64);
    let behind_z = low + EACH * (0x80 - b'z' as u64 - 1);
    let letters = from_a & !behind_z & !bytes & TOP;
    let whole = letters | (letters - (letters >> 7));
    // Moves the bit of byte `i` to bit `56 + i`; no two meet on the way.
    let bits = (letters >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    (lower & whole, bits)
}

/// Shows a first word that is longer than the buffer, and returns what follows it.
#[cold]
fn long<'a>(text: &'a [u8], word: &mut impl FnMut(&str)) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    let letters = std::str::from_utf8(&text[..end]).expect("letters are ASCII");
    word(&letters.to_ascii_lowercase());
    &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast(line: &str) -> Vec<String> {
        let mut all = Vec::new();
        words(line, |word| all.push(word.to_owned()));
        all
    }

    fn naive(line: &str) -> Vec<String> {
        let runs = line.split(|c: char| !c.is_ascii_alphabetic());
        runs.filter(|run| !run.is_empty()).map(str::to_ascii_lowercase).collect()
    }

    /// Text of `n` characters, among them the neighbours of letters; letters come in long runs if `letters_of_16` is 16.
    fn text(n: usize, letters_of_16: u64, state: &mut u64) -> String {
        let mut draw = |below: u64| {
            *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (*state >> 33) % below
        };
        let mut character = || {
            if draw(16) < letters_of_16 {
                let letter = b'a' + draw(26) as u8;
                char::from(if draw(4) == 0 { letter.to_ascii_uppercase() } else { letter })
            } else {
                [' ', '@', '[', '`', '{', '\0', '\u{7f}', '7', 'é', 'K', '京', '🌊']
                    [draw(12) as usize]
            }
        };
        (0..n).map(|_| character()).collect()
    }

    #[test]
    fn words_agree_with_the_naive_split_at_every_length_and_offset() {
        let mut state = 7;
        for n in 0..300 {
            for letters_of_16 in [1, 8, 13, 15] {
                let line = text(n, letters_of_16, &mut state);
                assert_eq!(fast(&line), naive(&line), "{line:?}");
            }
        }
        let line = text(700, 13, &mut state);
        for (offset, _) in line.char_indices() {
            assert_eq!(fast(&line[offset..]), naive(&line[offset..]));
            assert_eq!(fast(&line[..offset]), naive(&line[..offset]));
        }
    }

    #[test]
    fn words_longer_than_the_buffer_stay_whole() {
        for n in [255, 256, 257, 258, 511, 512, 513, 2000] {
            let long = "Ab".repeat(n)[..n].to_owned();
            for line in [long.clone(), format!("x {long}"), format!("{long} y {long}")] {
                assert_eq!(fast(&line), naive(&line), "{n} letters");
            }
        }
    }

    #[test]
    fn every_ascii_character_is_a_letter_or_separates() {
        for code in 0..128u8 {
            let line = format!("a{}b", char::from(code));
            assert_eq!(fast(&line), naive(&line), "{code}");
        }
    }
}
