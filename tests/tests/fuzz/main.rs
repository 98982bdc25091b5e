//! The fuzz targets on a stable toolchain: each over its corpus and over mutations of it that are the same in each run.

mod decoders;
mod run;
