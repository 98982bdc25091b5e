//! tracker
