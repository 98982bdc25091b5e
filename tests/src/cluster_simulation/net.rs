//! The clock, what is to happen, and the sessions between components: what a simulated cluster has in common.

use std::collections::BTreeMap;

use tidegate::clock::{EpochMillis, Timestamp};
use tidegate::control::blocklist::item::ItemKey;
use tidegate::control::blocklist::listeners::BlocklistMessage;
use tidegate::control::moment::Moment;

use super::message::{Event, Message, Who};
use super::reach::{Race, Reach};
use crate::simulation::dice::Dice;

/// Names a session.
pub type SessionId = usize;

/// What the wall clock shows at the start, in ms.
const WALL: i64 = 1_700_000_000_000;

#[derive(Debug)]
struct Session {
    ends: [Who; 2],
    is_alive: bool,
    /// When the last message in each direction arrives.
    last: [u64; 2],
}

/// What the components share.
#[derive(Debug)]
pub struct Net {
    /// In ms.
    pub now: u64,
    /// All that is left to chance.
    pub dice: Dice,
    /// The races met.
    pub reach: Reach,
    /// The first thing that was wrong.
    pub violation: Option<String>,
    /// A digest of all events.
    pub digest: u64,
    /// Whether the trouble is over.
    pub is_healed: bool,
    /// Events so far.
    pub steps: u64,
    is_loud: bool,
    queue: BTreeMap<(u64, u64), Event>,
    sent: u64,
    sessions: Vec<Session>,
    ticks: BTreeMap<Who, u64>,
    /// Keys of notices under way, and who sent them.
    flying: Vec<(ItemKey, Who)>,
}

impl Net {
    /// Nothing has happened yet.
    pub fn new(dice: Dice, is_loud: bool) -> Self {
        Self {
            now: 0,
            dice,
            reach: Reach::default(),
            violation: None,
            digest: 0,
            is_healed: false,
            steps: 0,
            is_loud,
            queue: BTreeMap::new(),
            sent: 0,
            sessions: Vec::new(),
            ticks: BTreeMap::new(),
            flying: Vec::new(),
        }
    }

    /// What both clocks show.
    pub fn moment(&self) -> Moment {
        let wall = EpochMillis(WALL + i64::try_from(self.now).unwrap_or(i64::MAX));
        Moment::new(Timestamp::from_millis(self.now), wall)
    }

    /// The next event, not later than `until`.
    pub fn next(&mut self, until: u64) -> Option<Event> {
        let (&(at, _), _) = self.queue.first_key_value()?;
        if at > until || self.violation.is_some() {
            return None;
        }
        let (_, event) = self.queue.pop_first()?;
        self.now = at;
        self.steps += 1;
        Some(event)
    }

    /// Puts what happens into the digest, and tells it if somebody listens.
    pub fn record(&mut self, event: &Event) {
        // Whatever goes another way schedules something else, or at another time.
        let (kind, who) = event.kind();
        for number in [self.now, self.sent, kind, who] {
            self.digest = (self.digest ^ number).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
        }
        self.tell(|| format!("{event:?}"));
    }

    /// Tells a step, if somebody listens.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_loud {
            println!("{}     {}", self.now, what());
        }
    }

    /// Something happens in `wait` ms.
    pub fn later(&mut self, wait: u64, event: Event) {
        self.at(self.now + wait, event);
    }

    /// Something happens within `from` to `to` ms.
    pub fn within(&mut self, from: u64, to: u64, event: Event) {
        let wait = self.dice.within(from, to);
        self.later(wait, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sent += 1;
        self.queue.insert((at, self.sent), event);
    }

    /// Sees to it that a machine is told of its deadline.
    pub fn tick_at(&mut self, who: Who, deadline: Option<Timestamp>) {
        let Some(deadline) = deadline else { return };
        let at = deadline.as_nanos().div_ceil(1_000_000).max(self.now);
        if self.ticks.get(&who).is_none_or(|known| *known > at) {
            self.ticks.insert(who, at);
            self.at(at, Event::Tick(who));
        }
    }

    /// Whether this is the tick that was asked for last.
    pub fn take_tick(&mut self, who: Who) -> bool {
        let is_due = self.ticks.get(&who) == Some(&self.now);
        if is_due {
            self.ticks.remove(&who);
        }
        is_due
    }

    /// A machine that was told of the time must not want to be told of it again.
    pub fn check_deadline(&mut self, who: Who, deadline: Option<Timestamp>) {
        let now = Timestamp::from_millis(self.now);
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.violate(|| format!("{who:?} wants a tick at {deadline:?}, which has been"));
        }
    }

    /// A new session, opened by `from`.
    pub fn open(&mut self, from: Who, to: Who) -> SessionId {
        self.sessions.push(Session { ends: [from, to], is_alive: true, last: [0; 2] });
        self.sessions.len() - 1
    }

    /// The other end of a session.
    pub fn peer(&self, session: SessionId, of: Who) -> Who {
        let ends = self.sessions[session].ends;
        if ends[0] == of { ends[1] } else { ends[0] }
    }

    /// Whether a session carries anything.
    pub fn is_alive(&self, session: SessionId) -> bool {
        self.sessions[session].is_alive
    }

    /// Ends a session; what is under way is lost. Its ends notice it, or have to find out.
    pub fn cut(&mut self, session: SessionId) {
        if !std::mem::replace(&mut self.sessions[session].is_alive, false) {
            return;
        }
        for end in self.sessions[session].ends {
            if self.is_healed || self.dice.chance(3, 4) {
                self.within(
                    0,
                    if self.is_healed { 100 } else { 3000 },
                    Event::Closed(session, end),
                );
            }
        }
    }

    /// Tells the ends of all sessions that are over, and cuts those in `half_open`.
    pub fn heal(&mut self) {
        self.is_healed = true;
        for session in 0..self.sessions.len() {
            if !self.sessions[session].is_alive {
                for end in self.sessions[session].ends {
                    self.later(1, Event::Closed(session, end));
                }
            }
        }
    }

    /// A session of the sender's choice, to cut; it may be over.
    pub fn any_session(&mut self) -> Option<SessionId> {
        let recent = self.sessions.len().min(12) as u64;
        let back = self.dice.below(recent) as usize;
        self.sessions.len().checked_sub(back + 1)
    }

    /// Sends a message; it may be lost.
    pub fn send(&mut self, session: SessionId, from: Who, message: Message) {
        let to = self.peer(session, from);
        if !self.is_alive(session) {
            if self.dice.chance(1, 2) {
                self.within(10, 2000, Event::Undeliverable(session, from));
            }
            return;
        }
        let is_slow = !self.is_healed && self.dice.chance(1, 24);
        let wait = if is_slow { self.dice.within(100, 4000) } else { self.dice.within(1, 20) };
        if let Message::Blocklist(said) = &message {
            return self.send_blocklist(session, from, to, said.clone(), wait);
        }
        let direction = usize::from(self.sessions[session].ends[0] != from);
        let at = (self.now + wait).max(self.sessions[session].last[direction]);
        self.sessions[session].last[direction] = at;
        self.at(at, Event::Deliver { session, to, message });
    }

    fn send_blocklist(
        &mut self,
        session: SessionId,
        from: Who,
        to: Who,
        said: BlocklistMessage,
        wait: u64,
    ) {
        self.note_crossing(from, &said);
        if !self.is_healed && self.dice.chance(1, 12) {
            self.meet(Race::BlocklistMessageLost);
            return;
        }
        if !self.is_healed && self.dice.chance(1, 12) {
            self.meet(Race::BlocklistMessageDoubled);
            let again = self.dice.within(1, 8000);
            let message = Message::Blocklist(said.clone());
            self.later(again, Event::Deliver { session, to, message });
        }
        if let BlocklistMessage::Notify(notice) = &said {
            let keys = notice.items.iter().map(|item| (item.key.clone(), from));
            self.flying.extend(keys);
        }
        self.later(wait, Event::Deliver { session, to, message: Message::Blocklist(said) });
    }

    fn note_crossing(&mut self, from: Who, said: &BlocklistMessage) {
        let BlocklistMessage::Notify(notice) = said else { return };
        let crosses = self
            .flying
            .iter()
            .any(|(key, other)| *other != from && notice.items.iter().any(|item| item.key == *key));
        if crosses {
            self.meet(Race::CrossingUpdates);
        }
    }

    /// A notice of `from` has arrived.
    pub fn landed(&mut self, from: Who, said: &BlocklistMessage) {
        if let BlocklistMessage::Notify(notice) = said {
            for item in &notice.items {
                let at = self.flying.iter().position(|(key, by)| *by == from && *key == item.key);
                if let Some(at) = at {
                    self.flying.swap_remove(at);
                }
            }
        }
    }

    /// Whether a notice is under way.
    pub fn has_notice_flying(&self) -> bool {
        !self.flying.is_empty()
    }

    /// Forgets what was under way: its sessions are over.
    pub fn drop_flying(&mut self) {
        self.flying.clear();
    }

    /// A race was met.
    pub fn meet(&mut self, race: Race) {
        self.reach.meet(race);
    }

    /// Something is wrong; the first is kept.
    pub fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} ms: {}", self.now, what()));
        }
    }
}
