//! `text::words` against splitting by a closure, on generated text with the word lengths of English.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Lines of about 70 characters, a few KB in all; and the number of their words.
fn lines() -> (Vec<String>, u64) {
    let mut state = 42u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) % below
    };
    let mut count = 0;
    let mut line = || {
        let mut line = String::new();
        while line.len() < 70 {
            let length = [1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 9][draw(12) as usize];
            for at in 0..length {
                let letter = char::from(b'a' + draw(26) as u8);
                line.push(if at == 0 && draw(8) == 0 {
                    letter.to_ascii_uppercase()
                } else {
                    letter
                });
            }
            line.push_str([" ", " ", " ", ", ", ". "][draw(5) as usize]);
            count += 1;
        }
        line
    };
    ((0..100).map(|_| line()).collect(), count)
}

fn words(c: &mut Criterion) {
    let (lines, count) = lines();
    let mut group = c.benchmark_group("words");
    group.throughput(Throughput::Elements(count));
    group.bench_function("closure", |b| {
        b.iter(|| {
            for line in &lines {
                let runs = line.split(|c: char| !c.is_ascii_alphabetic());
                for run in runs.filter(|run| !run.is_empty()) {
                    black_box(run.to_ascii_lowercase());
                }
            }
        });
    });
    group.bench_function("text::words", |b| {
        b.iter(|| {
            for line in &lines {
                tidegate::text::words(line, |word| {
                    black_box(word);
                });
            }
        });
    });
    group.finish();
}

criterion_group!(benches, words);
criterion_main!(benches);
