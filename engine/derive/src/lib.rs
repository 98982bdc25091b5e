//! The derive macro for Tidegate records.
