//! Trouble of a hop: remembered in memory by the relay that saw it, and always ended by a probe.

use crate::backoff::Backoff;
use crate::tier::{Hop, Tier};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rows of a probe batch; one ack suffices.
pub const PROBE: usize = 10;

/// Longest wait between two probes. Ten messages cost nothing, and a hop that works again should not wait longer.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// Whether messages may go to a hop now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// No trouble.
    Open,
    /// In trouble, and this batch may find out whether it still is, with at most [`PROBE`] messages.
    Probe,
    /// In trouble until the next probe, this long from now.
    Closed(Duration),
}

/// Refusals of single messages in a row that are as good as that of a whole batch.
const ALONE: u32 = 3;

#[derive(Debug, Default)]
struct State {
    /// Batches in a row that the hop refused, wholly or in part.
    failures: u32,
    /// The last of these, without a message that it took: batches of one say little each.
    alone: u32,
    /// Set while in trouble.
    next_probe: Option<Instant>,
}

/// The hops that refused something lately.
#[derive(Debug)]
pub struct Hops {
    hops: Mutex<HashMap<Hop, State>>,
    backoff: Backoff,
    /// A probe that has not been heard of for this long may be repeated by another worker.
    probe_time: Duration,
}

impl Hops {
    /// No hop is in trouble yet.
    #[must_use]
    pub fn new(backoff: Backoff, probe_time: Duration) -> Self {
        let max = backoff.max.min(PROBE_EVERY);
        Self { hops: Mutex::default(), backoff: Backoff { min: backoff.min.min(max), max }, probe_time }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Hop, State>> {
        self.hops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages may go to `hop` now. `Probe` is given to one caller at a time.
    pub fn gate(&self, hop: &Hop, now: Instant) -> Gate {
        let mut hops = self.lock();
        let Some(State { next_probe: Some(next), .. }) = hops.get_mut(hop) else { return Gate::Open };
        if *next > now {
            return Gate::Closed(*next - now);
        }
        *next = now + self.probe_time;
        Gate::Probe
    }

    /// The hop failed a whole batch; it is in trouble until a probe gets through. Returns the wait until that, and
    /// whether the trouble is new.
    pub fn trouble(&self, hop: &Hop, now: Instant) -> (Duration, bool) {
        let mut hops = self.lock();
        let state = hops.entry(hop.clone()).or_default();
        state.failures = state.failures.saturating_add(1);
        let wait = self.backoff.wait(state.failures);
        let new = state.next_probe.replace(now + wait).is_none();
        (wait, new)
    }

    /// The hop refused a part of a batch, or its only message: no trouble unless that happens again and again, but what it
    /// refused waits. Returns how long, and whether the hop is in trouble: only what it took ends that.
    pub fn refused(&self, hop: &Hop, took_some: bool, now: Instant) -> (Duration, bool) {
        let mut hops = self.lock();
        let state = hops.entry(hop.clone()).or_default();
        state.failures = state.failures.saturating_add(1);
        let wait = self.backoff.wait(state.failures);
        state.alone = if took_some { 0 } else { state.alone.saturating_add(1) };
        let in_trouble = !took_some && (state.next_probe.is_some() || state.alone >= ALONE);
        state.next_probe = in_trouble.then(|| now + wait);
        (wait, state.next_probe.is_some())
    }

    /// Hops in trouble that nothing has wanted to go to since their probe fell due, so that nobody knows how they are.
    pub fn untried(&self, now: Instant) -> Vec<Hop> {
        let untried = |state: &State| state.next_probe.is_some_and(|at| now >= at + PROBE_EVERY);
        self.lock().iter().filter(|(_, state)| untried(state)).map(|(hop, _)| hop.clone()).collect()
    }

    /// The hop took everything. Returns whether it was in trouble.
    pub fn healthy(&self, hop: &Hop) -> bool {
        self.lock().remove(hop).is_some_and(|state| state.next_probe.is_some())
    }

    /// How long `tier` needs not be scanned, because every hop of its own is in trouble; zero to scan it.
    pub fn closed(&self, tier: &Tier, now: Instant) -> Duration {
        let hops = self.lock();
        let wait =
            |hop: &Hop| hops.get(hop).and_then(|state| state.next_probe).map(|at| at.saturating_duration_since(now));
        let hops_of_its_own = tier.fixed_hops();
        let waits = hops_of_its_own.iter().map(wait).collect::<Option<Vec<_>>>();
        waits.and_then(|waits| waits.into_iter().min()).unwrap_or_default()
    }

    /// Whether every hop of `tier`'s own is in trouble, so that a batch need not be larger than a probe.
    pub fn probing(&self, tier: &Tier) -> bool {
        let hops = self.lock();
        let own = tier.fixed_hops();
        !own.is_empty() && own.iter().all(|hop| hops.get(hop).is_some_and(|state| state.next_probe.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::{Kind, Target};

    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(300) };

    fn hops() -> Hops {
        Hops::new(BACKOFF, Duration::from_secs(10))
    }

    #[test]
    fn trouble_ends_with_a_probe_given_to_one_worker() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        assert_eq!(hops.gate(&hop, t0), Gate::Open);
        let (wait, new) = hops.trouble(&hop, t0);
        assert!(new && wait >= BACKOFF.min);
        assert_eq!(hops.gate(&hop, t0), Gate::Closed(wait));
        assert_eq!(hops.gate(&hop, t0 + wait), Gate::Probe);
        assert!(matches!(hops.gate(&hop, t0 + wait), Gate::Closed(_)), "one probe at a time");
        assert!(hops.healthy(&hop));
        assert_eq!(hops.gate(&hop, t0), Gate::Open);
    }

    #[test]
    fn waits_grow_with_each_failure_but_not_beyond_the_probe_interval() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        let waits: Vec<Duration> = (0..12).map(|_| hops.trouble(&hop, t0).0).collect();
        assert!(waits[0] < waits[11]);
        assert_eq!(waits[11], PROBE_EVERY);
    }

    #[test]
    fn a_partial_refusal_waits_without_trouble() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        let (wait, in_trouble) = hops.refused(&hop, true, t0);
        assert!(wait >= BACKOFF.min && !in_trouble);
        assert_eq!(hops.gate(&hop, t0), Gate::Open);
    }

    #[test]
    fn a_probe_of_one_that_is_refused_does_not_end_the_trouble_and_one_ack_does() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        assert!(!hops.refused(&hop, false, t0).1, "one alone says nothing");
        hops.trouble(&hop, t0);
        let (wait, in_trouble) = hops.refused(&hop, false, t0);
        assert!(in_trouble);
        assert_eq!(hops.gate(&hop, t0), Gate::Closed(wait));
        assert!(!hops.refused(&hop, true, t0).1);
        assert_eq!(hops.gate(&hop, t0), Gate::Open);
    }

    #[test]
    fn refusals_of_single_messages_in_a_row_are_trouble_and_one_ack_begins_anew() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        let refused = |took_some| hops.refused(&hop, took_some, t0).1;
        assert_eq!([refused(false), refused(false), refused(true)], [false, false, false]);
        assert_eq!([refused(false), refused(false), refused(false)], [false, false, true]);
        assert!(matches!(hops.gate(&hop, t0), Gate::Closed(_)));
    }

    #[test]
    fn a_hop_that_nothing_waits_for_is_not_called_troubled_for_ever() {
        let (hops, hop, t0) = (hops(), Hop::queue("q"), Instant::now());
        let (wait, _) = hops.trouble(&hop, t0);
        assert!(hops.untried(t0 + wait).is_empty(), "its probe is due only now");
        assert_eq!(hops.untried(t0 + wait + PROBE_EVERY), std::slice::from_ref(&hop));
        assert_eq!(hops.gate(&hop, t0 + wait + PROBE_EVERY), Gate::Probe, "and its next rows are a probe all the same");
    }

    #[test]
    fn a_tier_is_closed_only_while_all_of_its_hops_are() {
        let (hops, t0) = (hops(), Instant::now());
        let tier = Tier { name: "t".into(), kind: Kind::Direct, target: Target::Queue("q".into()), mandatory: true };
        assert_eq!(hops.closed(&tier, t0), Duration::ZERO);
        let (wait, _) = hops.trouble(&Hop::queue("q"), t0);
        assert_eq!(hops.closed(&tier, t0), wait);
        assert!(hops.probing(&tier));
        let target = Target::Exchange { exchange: "x".into(), exchange_type: None, routing_key: None, queue: None };
        let by_row = Tier { target, ..tier };
        hops.trouble(&Hop { exchange: "x".into(), routing_key: "k".into() }, t0);
        assert_eq!(hops.closed(&by_row, t0), Duration::ZERO, "other keys go on");
    }
}
