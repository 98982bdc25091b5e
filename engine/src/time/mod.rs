//! Event time: where watermarks come from, and windows.

mod watermarks;
mod window;
mod window_logic;

pub use watermarks::{AssignWatermarks, Watermarks};
pub use window::{Window, Windows};
pub use window_logic::{WindowAggregate, WindowLogic};
