//! Drives a sink without an engine, and checks that each record becomes visible exactly once.
