//! Which connections are kept when there are too many: those with a request under way, then those heard of last.
//!
//! Who opens connections and says nothing takes seats only until others come, so that slow clients can't keep others out.
//! Holds no socket: what is to be closed is named.

use std::collections::BTreeMap;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeatId(u64);

/// The connections of one server; `T` closes one.
#[derive(Debug)]
pub(super) struct Seats<T> {
    max: usize,
    next: u64,
    seats: BTreeMap<SeatId, Seat<T>>,
}

#[derive(Debug)]
struct Seat<T> {
    close: T,
    /// When it was heard of last, in requests and connections; `None` while a request is answered.
    idle_since: Option<u64>,
}

impl<T> Seats<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { max: max.max(1), next: 0, seats: BTreeMap::new() }
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes room for one more: `Ok` with what must be closed for it, if anything; `Err` if all are busy.
    pub(super) fn make_room(&mut self) -> Result<Option<T>, ()> {
        if self.seats.len() < self.max { Ok(None) } else { self.evict().map(Some).ok_or(()) }
    }

    /// Takes the one out that has been idle longest.
    pub(super) fn evict(&mut self) -> Option<T> {
        let idle = self.seats.iter().filter_map(|(id, seat)| Some((seat.idle_since?, *id)));
        let (_, oldest) = idle.min()?;
        self.seats.remove(&oldest).map(|seat| seat.close)
    }

    /// A connection has come; `close` makes what closes it, of its id.
    pub(super) fn sit(&mut self, close: impl FnOnce(SeatId) -> T) {
        let id = SeatId(self.tick());
        let close = close(id);
        self.seats.insert(id, Seat { close, idle_since: Some(id.0) });
    }

    /// A request has come whole.
    pub(super) fn is_busy(&mut self, id: SeatId) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.idle_since = None;
        }
    }

    /// It is answered.
    pub(super) fn is_idle(&mut self, id: SeatId) {
        let now = self.tick();
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.idle_since = Some(now);
        }
    }

    /// The connection is closed.
    pub(super) fn leave(&mut self, id: SeatId) {
        self.seats.remove(&id);
    }

    /// How many requests are being answered.
    pub(super) fn busy(&self) -> usize {
        self.seats.values().filter(|seat| seat.idle_since.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(count: u64) -> Seats<u64> {
        let mut seats = Seats::new(count as usize);
        for _ in 0..count {
            assert_eq!(seats.make_room(), Ok(None));
            seats.sit(|id| id.0);
        }
        seats
    }

    #[test]
    fn the_one_idle_longest_makes_room() {
        let mut seats = seats(3);
        assert_eq!(seats.make_room(), Ok(Some(1)));
        seats.sit(|id| id.0);
        assert_eq!((seats.make_room(), seats.seats.len()), (Ok(Some(2)), 2));
    }

    #[test]
    fn a_busy_one_stays_and_is_new_when_it_was_answered() {
        let mut seats = seats(2);
        seats.is_busy(SeatId(1));
        assert_eq!((seats.busy(), seats.make_room()), (1, Ok(Some(2))));
        seats.sit(|id| id.0);
        seats.is_idle(SeatId(1));
        assert_eq!(seats.make_room(), Ok(Some(3)), "the other has been idle longer");
        let mut seats = Seats::new(1);
        seats.sit(|id| id.0);
        seats.is_busy(SeatId(1));
        assert_eq!(seats.make_room(), Err(()));
        seats.leave(SeatId(1));
        assert_eq!(seats.make_room(), Ok(None));
    }
}
