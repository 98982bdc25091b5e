//! Notices that a peer is gone: it was silent too long, or messages to it could not be delivered.
//!
//! Used between job master, resource manager and task managers, in both directions. A machine: the caller sends what
//! `tick` asks for and hands in what arrives.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;

/// How patient the heartbeats are.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatConfig {
    /// How often a peer is asked.
    pub interval: Duration,
    /// After how long a silence a peer is gone.
    pub timeout: Duration,
    /// After how many undeliverable messages in a row a peer is gone at once; `None` never.
    pub failure_threshold: Option<u32>,
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(50),
            failure_threshold: Some(2),
        }
    }
}

/// Why a peer counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Nothing was heard of it for the timeout.
    Timeout,
    /// Messages to it could not be delivered.
    Unreachable,
}

/// What must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatOutput<P> {
    /// Ask the peer for a sign of life.
    Request(P),
    /// The peer is gone, and no longer watched.
    Lost(P, LossReason),
}

#[derive(Debug)]
struct Watched {
    expires: Timestamp,
    next_request: Timestamp,
    failures: u32,
}

/// The peers one component watches.
#[derive(Debug)]
pub struct Heartbeats<P> {
    config: HeartbeatConfig,
    watched: BTreeMap<P, Watched>,
}

impl<P: Ord + Clone> Heartbeats<P> {
    /// Watches nobody.
    pub fn new(config: HeartbeatConfig) -> Self {
        Self { config, watched: BTreeMap::new() }
    }

    /// Watches a peer from now on.
    pub fn watch(&mut self, now: Timestamp, peer: P) {
        let expires = now + self.config.timeout;
        self.watched.insert(peer, Watched { expires, next_request: now, failures: 0 });
    }

    /// Stops watching a peer.
    pub fn unwatch(&mut self, peer: &P) {
        self.watched.remove(peer);
    }

    /// Something arrived from a peer.
    pub fn alive(&mut self, now: Timestamp, peer: &P) {
        if let Some(watched) = self.watched.get_mut(peer) {
            watched.expires = now + self.config.timeout;
            watched.failures = 0;
        }
    }

    /// A message to a peer could not be delivered.
    pub fn undeliverable(&mut self, peer: &P, out: &mut Vec<HeartbeatOutput<P>>) {
        let Some(watched) = self.watched.get_mut(peer) else { return };
        watched.failures += 1;
        if self.config.failure_threshold.is_some_and(|most| watched.failures >= most) {
            self.watched.remove(peer);
            out.push(HeartbeatOutput::Lost(peer.clone(), LossReason::Unreachable));
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Timestamp, out: &mut Vec<HeartbeatOutput<P>>) {
        self.watched.retain(|peer, watched| {
            if watched.expires <= now {
                out.push(HeartbeatOutput::Lost(peer.clone(), LossReason::Timeout));
                return false;
            }
            if watched.next_request <= now {
                watched.next_request = now + self.config.interval;
                out.push(HeartbeatOutput::Request(peer.clone()));
            }
            true
        });
    }

    /// When [`Heartbeats::tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.watched.values().map(|watched| watched.expires.min(watched.next_request)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn a_silent_peer_is_lost_at_the_timeout_and_not_before() {
        let (mut beats, mut out) = (Heartbeats::new(HeartbeatConfig::default()), Vec::new());
        beats.watch(at(0), 7);
        for second in 0..50 {
            beats.tick(at(second), &mut out);
        }
        assert_eq!(out, vec![HeartbeatOutput::Request(7); 5]);
        out.clear();
        beats.tick(at(50), &mut out);
        assert_eq!(out, [HeartbeatOutput::Lost(7, LossReason::Timeout)]);
        assert_eq!(beats.deadline(), None);
    }

    #[test]
    fn a_sign_of_life_starts_the_wait_again() {
        let (mut beats, mut out) = (Heartbeats::new(HeartbeatConfig::default()), Vec::new());
        beats.watch(at(0), 7);
        beats.alive(at(40), &7);
        beats.tick(at(89), &mut out);
        assert_eq!(out, [HeartbeatOutput::Request(7)]);
    }

    #[test]
    fn two_undeliverable_messages_in_a_row_lose_a_peer_at_once() {
        let (mut beats, mut out) = (Heartbeats::new(HeartbeatConfig::default()), Vec::new());
        beats.watch(at(0), 7);
        beats.undeliverable(&7, &mut out);
        beats.alive(at(1), &7);
        beats.undeliverable(&7, &mut out);
        assert!(out.is_empty());
        beats.undeliverable(&7, &mut out);
        assert_eq!(out, [HeartbeatOutput::Lost(7, LossReason::Unreachable)]);
        let patient = HeartbeatConfig { failure_threshold: None, ..HeartbeatConfig::default() };
        let mut beats = Heartbeats::new(patient);
        beats.watch(at(0), 7);
        out.clear();
        for _ in 0..100 {
            beats.undeliverable(&7, &mut out);
        }
        assert!(out.is_empty());
    }
}
