//! parker
