//! Event time: where watermarks come from, and windows.

mod combined;
mod watermarks;
mod window;
mod window_logic;

pub(crate) use combined::CombinedTime;
pub use watermarks::{AssignWatermarks, Watermarks};
pub use window::{Window, Windows};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use window_logic::pane_again;
pub use window_logic::{WindowAggregate, WindowLogic};
