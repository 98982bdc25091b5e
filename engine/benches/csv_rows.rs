//! Rows of five columns, like those of the flights, split and parsed in place.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::clock::EpochMillis;
use tidegate::record::Data;
use tidegate::source::csv_row::{CsvRow, RowParser};

#[derive(Clone, Data, CsvRow)]
struct Flight {
    date: EpochMillis,
    delay: i32,
    distance: u32,
    origin: String,
    destination: String,
}

fn lines() -> Vec<String> {
    let mut state = 42u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) % below
    };
    let airports = ["LAS", "PHL", "ATL", "SAV", "MCI", "MDW"];
    let mut row = |minute: u64| {
        let delay = if draw(3) == 0 { -(draw(20) as i64) } else { draw(150) as i64 };
        let (distance, from, to) = (60 + draw(2400), draw(6), draw(6));
        let (from, to) = (airports[from as usize], airports[to as usize]);
        format!(
            "2001-01-{:02}T{:02}:{:02},{delay},{distance},{from},{to}",
            1 + minute / 1440,
            minute / 60 % 24,
            minute % 60
        )
    };
    (0..1000).map(|i| row(i * 7)).collect()
}

fn rows(c: &mut Criterion) {
    let lines = lines();
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut group = c.benchmark_group("csv_rows");
    group.throughput(Throughput::Bytes(bytes as u64));
    let header = "date,delay,distance,origin,destination";
    let mut parser = RowParser::new::<Flight>(header, b',').expect("the header has the columns");
    group.bench_function("flights", |b| {
        b.iter(|| {
            for line in &lines {
                black_box(parser.row::<Flight>(line).expect("the row is right"));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, rows);
criterion_main!(benches);
