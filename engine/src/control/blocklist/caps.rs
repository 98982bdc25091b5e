//! How much of the fleet strategies may blocklist.
//!
//! People may do more (with `force`); a machine that decides on its own must not strangle the job. Three bounds hold at
//! once: a share of each node pool, as what runs in a small pool often can't run elsewhere, the same share of the whole
//! fleet, as many small pools may lose a node each, and a number. While the size of the fleet is unknown no share can
//! be told, and only the number holds. Asked by both handlers and by the REST interface.

use std::collections::{BTreeMap, BTreeSet};

use super::fleet::Fleet;
use super::item::{ItemKey, NewItem};
use super::strategy::PoolView;
use crate::control::identity::NodePool;

/// Bounds for items made automatically.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// The largest share of a pool's known nodes, and of the fleet's, that may be blocklisted, 0 to 1; never less than
    /// one node.
    pub max_blocked_ratio: f64,
    /// The most nodes of the fleet that may be blocklisted; never less than one.
    pub max_blocked_nodes: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { max_blocked_ratio: 0.33, max_blocked_nodes: 10 }
    }
}

/// An item was refused, because too much is blocklisted already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapExceeded {
    /// The resource that stays in use.
    pub key: ItemKey,
    /// The pool whose share is used up; `None` if it is a bound of the whole fleet.
    pub pool: Option<NodePool>,
    /// How many of its kind are blocklisted there.
    pub blocklisted: usize,
    /// How many may be.
    pub allowed: usize,
}

impl std::fmt::Display for CapExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, pool, blocklisted, allowed } = self;
        write!(f, "{key} is not blocklisted: {blocklisted}")?;
        if let Some(pool) = pool.as_ref().filter(|pool| !pool.is_default()) {
            write!(f, " in pool {pool}")?;
        }
        write!(f, " are already, at most {allowed} may be")
    }
}

impl Caps {
    /// The room that is left in `fleet`.
    pub fn room<'a>(&self, fleet: &'a Fleet) -> Room<'a> {
        Room { caps: *self, fleet, pools: fleet.pools().clone(), taken: BTreeSet::new() }
    }

    /// Takes of `items` those that fit into what is left of `fleet`; tells of the others why not.
    pub fn admit(&self, fleet: &Fleet, items: Vec<NewItem>) -> (Vec<NewItem>, Vec<CapExceeded>) {
        let mut room = self.room(fleet);
        let (mut admitted, mut refused) = (Vec::new(), Vec::new());
        for item in items {
            if !item.origin.is_automatic() {
                admitted.push(item);
                continue;
            }
            match room.take(&item.key) {
                Ok(()) => admitted.push(item),
                Err(exceeded) => refused.push(exceeded),
            }
        }
        (admitted, refused)
    }

    /// How many of `known` may be blocklisted.
    fn share(&self, known: usize) -> usize {
        let share = (known as f64 * self.max_blocked_ratio.clamp(0.0, 1.0)).floor() as usize;
        share.max(1)
    }
}

/// What may still be blocklisted, while one key after the other takes its part.
#[derive(Debug)]
pub struct Room<'a> {
    caps: Caps,
    fleet: &'a Fleet,
    /// The figures, with what was taken.
    pools: BTreeMap<NodePool, PoolView>,
    taken: BTreeSet<ItemKey>,
}

impl Room<'_> {
    /// Takes room for one more; a key that is blocklisted, or has taken room before, needs none.
    ///
    /// # Errors
    /// If there is none left.
    pub fn take(&mut self, key: &ItemKey) -> Result<(), CapExceeded> {
        if self.fleet.is_blocklisted(key) || self.taken.contains(key) {
            return Ok(());
        }
        let exceeded = |pool, blocklisted, allowed| {
            Err(CapExceeded { key: key.clone(), pool, blocklisted, allowed })
        };
        let item_type = key.item_type();
        let of_all = self.pools.values().map(|view| view.of(item_type));
        let (known, blocklisted) =
            of_all.fold((0, 0), |sum, pool| (sum.0 + pool.0, sum.1 + pool.1));
        let is_unknown = known == 0;
        let share = if is_unknown { usize::MAX } else { self.caps.share(known) };
        let allowed = self.caps.max_blocked_nodes.max(1).min(share);
        if blocklisted >= allowed {
            return exceeded(None, blocklisted, allowed);
        }
        let pool = self.fleet.pool_of(key);
        let (known, blocklisted) = self.pools.entry(pool.clone()).or_default().of_mut(item_type);
        let allowed = self.caps.share(*known);
        if !is_unknown && *blocklisted >= allowed {
            return exceeded(Some(pool), *blocklisted, allowed);
        }
        *blocklisted += 1;
        self.taken.insert(key.clone());
        Ok(())
    }
}
