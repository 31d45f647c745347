//! The room where deliveries are until somebody takes them: ready, or waiting for their moment without taking a slot.

use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Something that came out of a queue.
pub(super) trait Occupant {
    /// The queue.
    fn queue(&self) -> &str;
}

/// The room.
#[derive(Debug)]
pub(super) struct Room<W> {
    state: Mutex<State<W>>,
    bell: Notify,
}

#[derive(Debug)]
struct State<W> {
    ready: VecDeque<W>,
    /// By the moment, and a number, as two may wait for the same one.
    waiting: BTreeMap<(Instant, u64), W>,
    next: u64,
}

impl<W> Default for Room<W> {
    fn default() -> Self {
        let state = State { ready: VecDeque::new(), waiting: BTreeMap::new(), next: 0 };
        Self { state: Mutex::new(state), bell: Notify::new() }
    }
}

impl<W: Occupant> Room<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one in that can be taken at once.
    pub(super) fn ready(&self, one: W) {
        self.lock().ready.push_back(one);
        self.bell.notify_one();
    }

    /// Lets one in that can be taken after `wait`.
    pub(super) fn later(&self, one: W, wait: Duration) {
        let mut state = self.lock();
        let (at, number) = (Instant::now() + wait, state.next);
        state.next += 1;
        state.waiting.insert((at, number), one);
        self.bell.notify_one();
    }

    /// How many of a queue wait.
    pub(super) fn waiting(&self, queue: &str) -> usize {
        self.lock().waiting.values().filter(|one| one.queue() == queue).count()
    }

    /// Whether somebody could be taken at once who has not been looked at yet.
    pub(super) fn has_ready(&self) -> bool {
        !self.lock().ready.is_empty()
    }

    /// Sends away those that are no longer wanted.
    pub(super) fn retain(&self, wanted: impl Fn(&W) -> bool) {
        let mut state = self.lock();
        state.ready.retain(&wanted);
        state.waiting.retain(|_, one| wanted(one));
    }

    /// Takes the next one, as soon as there is one.
    pub(super) async fn next(&self) -> W {
        loop {
            // Registered before the look, so that whoever comes in between is seen.
            let mut rung = std::pin::pin!(self.bell.notified());
            rung.as_mut().enable();
            let until = match self.take() {
                Ok(one) => return one,
                Err(until) => until,
            };
            match until {
                Some(until) => drop(tokio::time::timeout_at(until, rung).await),
                None => rung.await,
            }
        }
    }

    /// Takes the next one, or says when there will be one.
    fn take(&self) -> Result<W, Option<Instant>> {
        let mut state = self.lock();
        let due = state.waiting.first_entry().filter(|first| first.key().0 <= Instant::now());
        let taken = due.map(OccupiedEntry::remove).or_else(|| state.ready.pop_front());
        let first = state.waiting.first_key_value().map(|((at, _), _)| *at);
        let Some(taken) = taken else { return Err(first) };
        // One bell is for one comer: whoever goes off to work leaves the looking to another.
        if first.is_some() || !state.ready.is_empty() {
            self.bell.notify_one();
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Occupant for &'static str {
        fn queue(&self) -> &str {
            &self[..1]
        }
    }

    #[tokio::test]
    async fn whoever_waits_is_taken_at_its_moment_and_holds_nobody_up() {
        let (room, start, ms) = (Room::<&str>::default(), Instant::now(), Duration::from_millis);
        room.later("q late", ms(90));
        room.later("q soon", ms(30));
        room.ready("p now");
        assert_eq!((room.waiting("q"), room.waiting("p")), (2, 0));
        assert_eq!(room.next().await, "p now");
        assert_eq!(room.next().await, "q soon");
        assert_eq!(room.next().await, "q late");
        assert!(start.elapsed() >= ms(90));
    }

    #[tokio::test]
    async fn every_taker_is_woken_in_time() {
        let (room, ms) = (Room::<&str>::default(), Duration::from_millis);
        let come = async {
            tokio::task::yield_now().await;
            for wait in [60, 20, 40] {
                room.later("q", ms(wait));
            }
        };
        let takers = futures_util::future::join_all([room.next(), room.next(), room.next()]);
        let both = tokio::time::timeout(Duration::from_secs(20), futures_util::future::join(takers, come));
        assert_eq!(both.await.map(|(taken, ())| taken), Ok(vec!["q"; 3]));
    }

    #[tokio::test]
    async fn those_sent_away_do_not_come_back() {
        let room = Room::<&str>::default();
        room.ready("p");
        room.later("p", Duration::ZERO);
        room.later("q", Duration::ZERO);
        room.retain(|one| one.queue() == "q");
        assert_eq!((room.waiting("p"), room.next().await), (0, "q"));
    }
}
