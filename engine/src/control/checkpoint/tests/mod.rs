//! Scenario tests of the coordinator.
