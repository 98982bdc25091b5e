//! The fuzz targets on a stable toolchain: each over its corpus and over mutations of it that are the same in each run.

#[path = "../allocations/counting.rs"]
mod counting;
mod decoders;
mod run;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;
