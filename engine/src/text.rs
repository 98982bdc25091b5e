//! Words of text: [`words`], the tokeniser of word counts.
//!
//! Splitting by a closure costs a branch a byte, which nobody predicts, and lower-casing an allocation a word. Here
//! 64 bytes at a time are lower-cased and turned into bits, one a letter; what is left per word is to find the next
//! two edges in a mask. Bench: `words`.

#![expect(unsafe_code, reason = "lower-cased letters are known to be text")]

use crate::record::bits::bits;
use crate::record::load::bytes64;

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
    let mut short = Lowered { bytes: [[0; 64]; BLOCKS], letters: [0; BLOCKS + 1] };
    // `word` is called at one place, so that the compiler puts it there.
    loop {
        let (text, behind) = cut(rest);
        let long;
        let (bytes, letters) = if text.len() <= BLOCKS * 64 {
            lower(text, &mut short.bytes, &mut short.letters);
            (short.bytes.as_flattened(), &short.letters[..=text.len() / 64])
        } else {
            long = long_word(text);
            (&long.0[..], &long.1[..])
        };
        each_run(bytes, letters, &mut word);
        if behind.is_empty() {
            return;
        }
        rest = behind;
    }
}

/// So many blocks of 64 bytes are lower-cased at a time, on the stack.
const BLOCKS: usize = 4;

/// Text of which the letters are lower-cased and all else is zero, and a bit for each letter. There is one word of bits
/// more than there are bytes for, so that a word at the very end ends at a bit like all others.
struct Lowered {
    bytes: [[u8; 64]; BLOCKS],
    letters: [u64; BLOCKS + 1],
}

/// Cuts off what fits on the stack and ends where a word does, or a first word that does not fit.
#[inline(always)]
fn cut(text: &[u8]) -> (&[u8], &[u8]) {
    if text.len() <= BLOCKS * 64 { (text, &[]) } else { cut_long(text) }
}

#[cold]
fn cut_long(text: &[u8]) -> (&[u8], &[u8]) {
    let is_no_letter = |byte: &u8| !byte.is_ascii_alphabetic();
    match text[..=BLOCKS * 64].iter().rposition(is_no_letter) {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => text.split_at(text.iter().position(is_no_letter).unwrap_or(text.len())),
    }
}

#[inline(always)]
fn lower(text: &[u8], bytes: &mut [[u8; 64]], letters: &mut [u64]) {
    // The last block is a short one, or empty.
    for index in 0..=text.len() / 64 {
        let block = bytes64(&text[index * 64..]);
        let lower: [u8; 64] = block.map(|byte| byte | 0x20);
        let is_letter = lower.map(|byte| byte.wrapping_sub(b'a') < 26);
        letters[index] = bits(is_letter);
        if let Some(to) = bytes.get_mut(index) {
            *to = std::array::from_fn(|i| if is_letter[i] { lower[i] } else { 0 });
        }
    }
}

/// A word that does not fit on the stack.
#[cold]
fn long_word(text: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let mut letters = vec![u64::MAX; text.len() / 64 + 1];
    letters[text.len() / 64] = (1 << (text.len() % 64)) - 1;
    (text.to_ascii_lowercase(), letters)
}

/// Shows each run of letters.
#[inline(always)]
fn each_run(bytes: &[u8], letters: &[u64], word: &mut impl FnMut(&str)) {
    let (mut start, mut last_bit) = (0, 0);
    for (index, &letters) in letters.iter().enumerate() {
        let before = letters << 1 | last_bit;
        let (mut starts, mut ends) = (letters & !before, before & !letters);
        let mut next_start = || {
            let start = index * 64 + starts.trailing_zeros() as usize;
            starts &= starts.wrapping_sub(1);
            start
        };
        if last_bit == 0 {
            start = next_start();
        }
        while ends != 0 {
            let end = index * 64 + ends.trailing_zeros() as usize;
            ends &= ends - 1;
            // SAFETY: where there are bits there are letters, which are ASCII.
            word(unsafe { std::str::from_utf8_unchecked(&bytes[start..end]) });
            start = next_start();
        }
        last_bit = letters >> 63;
    }
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
