//! The columns of a row are found by the names of the fields.
use tidegate::record::Data;
use tidegate::source::csv_row::CsvRow;

#[derive(Clone, Data, CsvRow)]
struct Point(i32, i32);

fn main() {}
