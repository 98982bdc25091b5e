//! Scenarios of the alignment machine.
