//! The blocklist (FLIP-224).
