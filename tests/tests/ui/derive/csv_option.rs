//! `rename` is the only option.
use tidegate::record::Data;
use tidegate::source::csv_row::CsvRow;

#[derive(Clone, Data, CsvRow)]
struct Point {
    #[csv(name = "X")]
    x: i32,
}

fn main() {}
