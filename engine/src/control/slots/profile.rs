//! What a slot provides or a task needs, and how many of each.

use std::collections::BTreeMap;

/// Resources of a slot. Profiles are compared as a whole: a slot serves the profile it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceProfile {
    /// Worker threads.
    pub workers: u32,
    /// Memory, in MiB; 0 if it is not counted.
    pub memory_mib: u32,
}

impl Default for ResourceProfile {
    fn default() -> Self {
        Self { workers: 1, memory_mib: 0 }
    }
}

impl ResourceProfile {
    /// Whether a slot with this profile can serve `need`.
    pub const fn serves(&self, need: &Self) -> bool {
        self.workers >= need.workers && self.memory_mib >= need.memory_mib
    }
}

/// How many slots of each profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounter(BTreeMap<ResourceProfile, u32>);

impl ResourceCounter {
    /// `count` slots of `profile`.
    pub fn of(profile: ResourceProfile, count: u32) -> Self {
        let mut counter = Self::default();
        counter.add(profile, count);
        counter
    }

    /// Adds `count` slots of `profile`.
    pub fn add(&mut self, profile: ResourceProfile, count: u32) {
        if count > 0 {
            *self.0.entry(profile).or_default() += count;
        }
    }

    /// Takes away up to `count` slots of `profile`.
    pub fn subtract(&mut self, profile: ResourceProfile, count: u32) {
        if let Some(held) = self.0.get_mut(&profile) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.0.remove(&profile);
            }
        }
    }

    /// How many slots of `profile`.
    pub fn count(&self, profile: &ResourceProfile) -> u32 {
        self.0.get(profile).copied().unwrap_or(0)
    }

    /// How many slots of any profile.
    pub fn total(&self) -> u32 {
        self.0.values().sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Profiles with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceProfile, u32)> + '_ {
        self.0.iter().map(|(profile, count)| (*profile, *count))
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (profile, count) in other.iter() {
            self.add(profile, count);
        }
    }
}
