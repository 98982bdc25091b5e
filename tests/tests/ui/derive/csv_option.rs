//! `rename` is the only option, and a list is no column.
use tidegate::record::Data;
use tidegate::source::csv_row::CsvRow;

#[derive(Clone, Data, CsvRow)]
struct Point {
    #[csv(name = "X")]
    x: i32,
}

#[derive(Clone, Data, CsvRow)]
struct Line {
    points: Vec<i32>,
}

fn main() {}
