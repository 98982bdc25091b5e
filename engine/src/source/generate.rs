//! Records that are a function of their index.
//!
//! Record `i` is `f(i)` in every run and every attempt, so a position is just the next index. Finite generators cut
//! their indices into a contiguous part per subtask; endless ones deal them out in turn. The loops over indices are
//! inlined into what follows in the chain and vectorise with it: nothing else may go into them.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use super::{Poll, Reader, ReaderContext, Source, Split};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::fields::{Fields, put_u64};
use crate::record::{AsData, Output};

/// The numbers of a range, in order in each subtask.
pub fn range(numbers: Range<u64>) -> Generate<impl Fn(u64) -> u64 + Clone + Send> {
    Generate { indices: numbers, f: |i| i }
}

/// `n` records of which record `i` is `f(i)`; subtask `w` of `p` makes `n*w/p .. n*(w+1)/p` in order.
pub fn generate<R: AsData, F>(n: u64, f: F) -> Generate<F>
where
    F: Fn(u64) -> R + Clone + Send + 'static,
{
    Generate { indices: 0..n, f }
}

/// Records without end of which record `i` is `f(i)`; subtask `w` of `p` makes `w`, `w + p`, `w + 2p`, and so on.
pub fn generate_forever<R: AsData, F>(f: F) -> GenerateForever<F>
where
    F: Fn(u64) -> R + Clone + Send + 'static,
{
    GenerateForever { f }
}

/// See [`range`] and [`generate`].
#[derive(Clone)]
pub struct Generate<F> {
    indices: Range<u64>,
    f: F,
}

impl<F> fmt::Debug for Generate<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generate").field("indices", &self.indices).finish_non_exhaustive()
    }
}

const VERSION: u8 = 1;

fn split_of(first: u64, second: u64) -> Split {
    let mut bytes = vec![VERSION];
    put_u64(&mut bytes, first);
    put_u64(&mut bytes, second);
    Split(bytes)
}

fn parse(split: &Split) -> Result<(u64, u64)> {
    let mut fields = Fields::versioned(&split.0, VERSION, "a generator's split")?;
    let pair = (fields.u64()?, fields.u64()?);
    fields.end()?;
    Ok(pair)
}

impl<R: AsData, F> Source for Generate<F>
where
    F: Fn(u64) -> R + Clone + Send + 'static,
{
    type Out = R::Data;
    type Reader = GenerateReader<F>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        let (start, p) = (self.indices.start, u128::from(parallelism));
        let n = u128::from(self.indices.end.saturating_sub(start));
        // At most `n`, so it fits.
        let cut = |w: u32| start + (n * u128::from(w) / p) as u64;
        Ok((0..parallelism).map(|w| split_of(cut(w), cut(w + 1))).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<Self::Reader> {
        let mut later = VecDeque::with_capacity(splits.len());
        for split in &splits {
            let (next, end) = parse(split)?;
            later.push_back(next..end);
        }
        Ok(GenerateReader { indices: later.pop_front().unwrap_or(0..0), later, f: self.f.clone() })
    }
}

/// Reads one subtask's share of a [`Generate`].
pub struct GenerateReader<F> {
    indices: Range<u64>,
    later: VecDeque<Range<u64>>,
    f: F,
}

impl<F> fmt::Debug for GenerateReader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateReader")
            .field("indices", &self.indices)
            .field("later", &self.later)
            .finish_non_exhaustive()
    }
}

impl<R: AsData, F> Reader for GenerateReader<F>
where
    F: Fn(u64) -> R + 'static,
{
    type Out = R::Data;

    #[inline(always)]
    fn poll(
        &mut self,
        limit: usize,
        _now: Timestamp,
        out: &mut Output<'_, R::Data>,
    ) -> Result<Poll> {
        let Range { start, end } = self.indices;
        let stop = start + end.saturating_sub(start).min(limit as u64);
        let f = &self.f;
        for i in start..stop {
            out.emit(f(i));
        }
        self.indices.start = stop;
        if stop < end {
            return Ok(Poll::Ready);
        }
        match self.later.pop_front() {
            Some(next) => {
                self.indices = next;
                Ok(Poll::Ready)
            }
            None => Ok(Poll::End),
        }
    }

    fn snapshot(&mut self) -> Vec<Split> {
        std::iter::once(&self.indices)
            .chain(&self.later)
            .filter(|indices| !indices.is_empty())
            .map(|indices| split_of(indices.start, indices.end))
            .collect()
    }
}

/// See [`generate_forever`].
#[derive(Clone)]
pub struct GenerateForever<F> {
    f: F,
}

impl<F> fmt::Debug for GenerateForever<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateForever").finish_non_exhaustive()
    }
}

impl<R: AsData, F> Source for GenerateForever<F>
where
    F: Fn(u64) -> R + Clone + Send + 'static,
{
    type Out = R::Data;
    type Reader = GenerateForeverReader<F>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        Ok((0..u64::from(parallelism)).map(|w| split_of(w, parallelism.into())).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<Self::Reader> {
        let dealt = splits.iter().map(parse).collect::<Result<_>>()?;
        Ok(GenerateForeverReader { dealt, f: self.f.clone() })
    }
}

/// Reads one subtask's share of a [`GenerateForever`].
pub struct GenerateForeverReader<F> {
    /// Next index and stride of each split; the front one is read next, then it goes to the back.
    dealt: VecDeque<(u64, u64)>,
    f: F,
}

impl<F> fmt::Debug for GenerateForeverReader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateForeverReader").field("dealt", &self.dealt).finish_non_exhaustive()
    }
}

impl<R: AsData, F> Reader for GenerateForeverReader<F>
where
    F: Fn(u64) -> R + 'static,
{
    type Out = R::Data;

    #[inline(always)]
    fn poll(
        &mut self,
        limit: usize,
        _now: Timestamp,
        out: &mut Output<'_, R::Data>,
    ) -> Result<Poll> {
        let Some((next, stride)) = self.dealt.pop_front() else {
            return Ok(Poll::End);
        };
        let f = &self.f;
        let mut i = next;
        for _ in 0..limit {
            out.emit(f(i));
            i = i.wrapping_add(stride);
        }
        self.dealt.push_back((i, stride));
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.dealt.iter().map(|&(next, stride)| split_of(next, stride)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source::{Drive, conformance};

    #[test]
    fn a_range_conforms() {
        conformance(|| range(5..42), &(5..42).collect::<Vec<_>>());
        conformance(|| range(5..5), &[]);
        conformance(|| range(0..2), &[0, 1]);
    }

    #[test]
    fn a_generator_conforms_with_records_that_own_memory() {
        let expected: Vec<_> = (0..20).map(|i| (i, format!("n{i}"))).collect();
        conformance(|| generate(20, |i| (i, format!("n{i}"))), &expected);
    }

    #[test]
    fn each_subtask_makes_its_contiguous_share_in_order() {
        let shares = Drive::new(&range(0..10), 4).expect("opens").read_shares();
        assert_eq!(shares, [vec![0, 1], vec![2, 3, 4], vec![5, 6], vec![7, 8, 9]]);
        let huge = range(0..u64::MAX).splits(3).expect("cuts");
        assert_eq!(parse(&huge[2]).expect("parses").1, u64::MAX);
    }

    #[test]
    fn an_endless_generator_deals_its_indices_in_turn_and_goes_on_after_a_rescale() {
        let source = generate_forever(|i| i);
        let mut two = Drive::new(&source, 2).expect("opens");
        let mut seen = two.read_at_most(10, 3);
        let mut one = Drive::restored(&source, 1, two.snapshot()).expect("opens");
        seen.extend(one.read_at_most(10, 4));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 20, "none twice");
        assert!(seen.iter().all(|&i| i < 40));
    }

    #[test]
    fn a_split_of_an_unknown_format_is_refused() {
        let context = ReaderContext { name: "numbers", subtask: 0, parallelism: 1 };
        let error = range(0..1).open(vec![Split(vec![9])], context).expect_err("is refused");
        assert_eq!(error.kind(), crate::error::ErrorKind::Checkpoint);
    }
}
