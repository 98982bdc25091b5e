//! Who must be told of changes of the blocklist, and what each was not told yet (FLIP-224, synchronise between JM & RM).
//!
//! At most one notice is under way to a peer; what changes meanwhile waits as a set of keys and is read when it is
//! sent, so a slow peer costs one entry per key. A notice that is not acknowledged in time is sent again with
//! what has changed since. Messages of another term than the peer registered with are dropped. Used by both handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::entry::Tombstone;
use super::item::{BlocklistedItem, ItemKey};
use super::tracker::BlocklistTracker;
use crate::clock::Timestamp;
use crate::control::identity::LeaderId;
use crate::probe::{Fault, is_broken};

/// What job master and resource manager tell each other about the blocklist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlocklistMessage {
    /// `notify_new_blocklisted_items` and `notify_removed_items` in one: joins, so order and number don't matter.
    Notify(BlocklistNotice),
    /// The notice `seq` of the receiver arrived.
    Acknowledge {
        /// Term of the sender.
        session: LeaderId,
        /// Term in which the notice was sent.
        notice_session: LeaderId,
        /// Which notice of that term.
        seq: u64,
    },
}

impl BlocklistMessage {
    /// Term of the sender.
    pub const fn session(&self) -> LeaderId {
        match self {
            Self::Notify(notice) => notice.session,
            Self::Acknowledge { session, .. } => *session,
        }
    }
}

/// Everything the sender holds of some keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlocklistNotice {
    /// Term of the sender.
    pub session: LeaderId,
    /// Which notice of the sender.
    pub seq: u64,
    /// Whether it opens a connection: all the sender knows, not something new.
    pub is_full: bool,
    /// The items.
    pub items: Vec<BlocklistedItem>,
    /// The removals.
    pub tombstones: Vec<Tombstone>,
}

/// Where a handler's messages go.
pub trait BlocklistOutbox<P> {
    /// Sends a message; it may be lost.
    fn send(&mut self, to: &P, message: BlocklistMessage);
}

#[derive(Clone, Debug, Hash)]
struct Peer {
    session: LeaderId,
    dirty: BTreeSet<ItemKey>,
    is_full: bool,
    in_flight: Option<InFlight>,
}

#[derive(Clone, Debug, Hash)]
struct InFlight {
    seq: u64,
    keys: BTreeSet<ItemKey>,
    is_full: bool,
    resend_at: Timestamp,
}

/// The registered peers of one handler.
#[derive(Clone, Debug)]
pub struct BlocklistListeners<P> {
    own_session: LeaderId,
    resend_after: Duration,
    seq: u64,
    resends: u64,
    peers: BTreeMap<P, Peer>,
}

impl<P: Ord + Clone> BlocklistListeners<P> {
    /// No peers; messages carry term `own_session` and are repeated after `resend_after`.
    pub fn new(own_session: LeaderId, resend_after: Duration) -> Self {
        Self { own_session, resend_after, seq: 0, resends: 0, peers: BTreeMap::new() }
    }

    /// Registers a peer that will be told everything in `tracker`. A peer of another term replaces the former one;
    /// one already registered is left as it is.
    pub fn register(&mut self, peer: P, session: LeaderId, tracker: &BlocklistTracker) -> bool {
        if self.peers.get(&peer).is_some_and(|known| known.session == session) {
            return false;
        }
        let dirty: BTreeSet<_> = tracker.keys().cloned().collect();
        let is_full = !dirty.is_empty();
        self.peers.insert(peer, Peer { session, dirty, is_full, in_flight: None });
        true
    }

    /// Tells a peer nothing more.
    pub fn deregister(&mut self, peer: &P) {
        self.peers.remove(peer);
    }

    /// Whether `session` is the term in which `peer` is registered.
    pub fn is_current(&self, peer: &P, session: LeaderId) -> bool {
        self.peers.get(peer).is_some_and(|known| known.session == session)
    }

    /// Notes that `key` changed, for all peers but `except`.
    pub fn changed(&mut self, key: &ItemKey, except: Option<&P>) {
        for (peer, state) in &mut self.peers {
            if Some(peer) != except {
                state.dirty.insert(key.clone());
            }
        }
    }

    /// Notes that `peer` must be told of `key`.
    pub fn changed_for(&mut self, key: &ItemKey, peer: &P) {
        if let Some(state) = self.peers.get_mut(peer) {
            state.dirty.insert(key.clone());
        }
    }

    /// A peer has notice `seq` of term `notice_session`; one of an earlier term is not ours.
    pub fn acknowledged(&mut self, peer: &P, notice_session: LeaderId, seq: u64) {
        if notice_session == self.own_session
            && let Some(state) = self.peers.get_mut(peer)
            && state.in_flight.as_ref().is_some_and(|flight| flight.seq == seq)
        {
            state.in_flight = None;
        }
    }

    /// Sends what is due.
    pub fn flush(
        &mut self,
        now: Timestamp,
        tracker: &BlocklistTracker,
        out: &mut dyn BlocklistOutbox<P>,
    ) {
        for (peer, state) in &mut self.peers {
            if let Some(flight) = state.in_flight.take_if(|flight| flight.resend_at <= now) {
                if is_broken(Fault::NoticeNotRepeated) {
                    continue;
                }
                state.dirty.extend(flight.keys);
                state.is_full |= flight.is_full;
                self.resends += 1;
            }
            if state.in_flight.is_some() || state.dirty.is_empty() {
                continue;
            }
            let keys = std::mem::take(&mut state.dirty);
            let (mut items, mut tombstones) = (Vec::new(), Vec::new());
            for key in &keys {
                let (parts, tombstone) = tracker.told(key);
                items.extend_from_slice(parts);
                tombstones.extend(tombstone.cloned());
            }
            if items.is_empty() && tombstones.is_empty() {
                continue; // They ended meanwhile, and the peer sees that itself.
            }
            self.seq += 1;
            let is_full = std::mem::take(&mut state.is_full);
            let resend_at = now + self.resend_after;
            state.in_flight = Some(InFlight { seq: self.seq, keys, is_full, resend_at });
            let notice = BlocklistNotice {
                session: self.own_session,
                seq: self.seq,
                is_full,
                items,
                tombstones,
            };
            out.send(peer, BlocklistMessage::Notify(notice));
        }
    }

    /// When an unacknowledged notice must be sent again.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.peers.values().filter_map(|peer| Some(peer.in_flight.as_ref()?.resend_at)).min()
    }

    /// The acknowledgement of a peer's notice.
    pub fn acknowledgement(&self, notice: &BlocklistNotice) -> BlocklistMessage {
        BlocklistMessage::Acknowledge {
            session: self.own_session,
            notice_session: notice.session,
            seq: notice.seq,
        }
    }

    /// How many notices were sent again.
    pub fn resends(&self) -> u64 {
        self.resends
    }

    /// Who is registered.
    pub fn peers(&self) -> impl Iterator<Item = &P> {
        self.peers.keys()
    }
}

/// What decides what it does next.
impl<P: Hash> Hash for BlocklistListeners<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { own_session, seq, peers, .. } = self;
        (own_session, seq, peers).hash(state);
    }
}
