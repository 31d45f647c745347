//! Going to sleep without missing anybody: the order of the steps, without a clock and without I/O.
//!
//! While a relay is awake it holds the lock K, and producers that see K held do not ring. A producer may have seen it
//! and not have committed yet: whoever simply goes to sleep then never hears of its row. So:
//!
//! ```text
//! awake ──nothing found──▶ lingering ──still nothing──▶ release K, then note who is inserting
//!   ▲                                                        │
//!   │                                     leaving: look, and wait until none of those is left
//!   └──────────── rows come fast ────────────────────────────┤
//!                                                            ▼
//!                            asleep  ◀── a look after the last of them has ended found nothing
//! ```
//!
//! A single row changes nothing on this way: it is claimed, and the next look is the one that counts. A producer that
//! starts after the release sees K free, and rings. `tests/it/doorbell/model.rs` explores this machine
//! with producers and crashes in every order.

use std::time::Duration;

/// Looks before K is released: with the pauses and what each takes, some 10 ms.
const LINGER: u32 = 5;

/// The pause between them.
const STEP: Duration = Duration::from_millis(1);

/// The longest pause while open transactions are waited for, at first and after [`PATIENT`] pauses (a second or so):
/// somebody who keeps a transaction open for minutes is not worth a hundred looks a second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Pauses after which they grow beyond the first bound.
const PATIENT: u32 = 100;

/// Where a relay is between awake and asleep. `T` names a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sleep<T> {
    phase: Phase<T>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase<T> {
    /// Nobody relies on this relay: it has told the others, or has not begun.
    Away,
    /// Rows were found, or may be there unannounced.
    Awake,
    /// Nothing was found that many times.
    Lingering(u32),
    /// K is released; these transactions may have seen it held. Pauses made so far.
    Leaving { open: Vec<T>, pauses: u32 },
    /// Whoever inserts now rings.
    Asleep,
}

/// What to do after a look that found nothing to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look again after this pause.
    Look(Duration),
    /// Release K, then ask who is inserting, tell [`Sleep::left`], and look again.
    Leave,
    /// After this pause ask again who is inserting, tell [`Sleep::still`], and look again.
    Wait(Duration),
    /// Sleep until somebody rings.
    Sleep,
}

impl<T> Default for Sleep<T> {
    /// On the way to sleep from its beginning: what was committed before the start was announced to nobody.
    fn default() -> Self {
        Self { phase: Phase::Away }
    }
}

impl<T: PartialEq> Sleep<T> {
    /// Rows were found, or some may be there that nobody rings for: the way to sleep begins anew.
    pub fn wake(&mut self) {
        self.phase = Phase::Awake;
    }

    /// This relay cannot claim for a while. Whether others have to be told, because they may rely on it: while it is on
    /// its way to sleep for the transactions that it waits for, and asleep for the rows whose time it alone knows.
    #[must_use]
    pub fn stand_back(&mut self) -> bool {
        !matches!(std::mem::replace(&mut self.phase, Phase::Away), Phase::Away)
    }

    /// Whether a ring is what ends the sleep.
    #[must_use]
    pub fn asleep(&self) -> bool {
        matches!(self.phase, Phase::Asleep)
    }

    /// Whether K is held, or may be: nobody rings, and the way to sleep has not been begun.
    #[must_use]
    pub fn lingers(&self) -> bool {
        matches!(self.phase, Phase::Awake | Phase::Lingering(_))
    }

    /// The transactions that are waited for, if it has come to that.
    #[must_use]
    pub fn open(&self) -> &[T] {
        if let Phase::Leaving { open, .. } = &self.phase { open } else { &[] }
    }

    /// A look found nothing to claim.
    pub fn nothing(&mut self) -> Next {
        let (phase, next) = match &self.phase {
            Phase::Away | Phase::Awake => (Phase::Lingering(1), Next::Look(STEP)),
            Phase::Lingering(looks) if *looks < LINGER => (Phase::Lingering(looks + 1), Next::Look(STEP)),
            Phase::Lingering(_) => return Next::Leave,
            Phase::Leaving { open, pauses } if !open.is_empty() => return Next::Wait(pause(*pauses)),
            // This look began after the last of them had ended.
            Phase::Leaving { .. } | Phase::Asleep => (Phase::Asleep, Next::Sleep),
        };
        self.phase = phase;
        next
    }

    /// K was released, and after that these transactions were inserting.
    pub fn left(&mut self, open: Vec<T>) {
        self.phase = Phase::Leaving { open, pauses: 0 };
    }

    /// These are inserting now; others than those that are waited for have seen K free, but for one that lost its name:
    /// any that is `renamed` may have been among them.
    pub fn still(&mut self, mut now: Vec<T>, renamed: impl Fn(&T) -> bool) {
        if let Phase::Leaving { open, pauses } = &mut self.phase {
            now.retain(|transaction| open.contains(transaction) || renamed(transaction));
            *open = now;
            *pauses = pauses.saturating_add(1);
        }
    }
}

fn pause(pauses: u32) -> Duration {
    let (pauses, longest) = if pauses < PATIENT { (pauses, PAUSE.0) } else { (pauses - PATIENT + 4, PAUSE.1) };
    super::doubled(STEP, pauses, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lingered() -> Sleep<u32> {
        let mut sleep = Sleep::default();
        for _ in 0..LINGER {
            assert_eq!(sleep.nothing(), Next::Look(STEP));
        }
        assert_eq!(sleep.nothing(), Next::Leave);
        sleep
    }

    #[test]
    fn with_nobody_inserting_one_look_after_the_release_is_enough() {
        let mut sleep = lingered();
        sleep.left(vec![]);
        assert!(!sleep.asleep());
        assert_eq!(sleep.nothing(), Next::Sleep);
        assert!(sleep.asleep());
        assert_eq!(sleep.nothing(), Next::Sleep, "a poll that finds nothing changes nothing");
    }

    #[test]
    fn it_waits_for_those_who_were_inserting_and_for_nobody_else() {
        let mut sleep = lingered();
        sleep.left(vec![1, 2]);
        assert!(matches!(sleep.nothing(), Next::Wait(_)));
        sleep.still(vec![2, 3], |_| false);
        assert_eq!(sleep.open(), [2]);
        assert!(matches!(sleep.nothing(), Next::Wait(_)));
        sleep.still(vec![3], |_| false);
        assert_eq!(sleep.nothing(), Next::Sleep, "the look after the last of them has ended is the last");
    }

    #[test]
    fn one_that_comes_back_under_another_name_is_waited_for() {
        let mut sleep = lingered();
        sleep.left(vec![1]);
        sleep.still(vec![3, 100], |transaction| *transaction >= 100);
        assert_eq!(sleep.open(), [100]);
    }

    #[test]
    fn what_is_found_on_the_way_wakes_it_again() {
        let mut sleep = lingered();
        sleep.left(vec![1]);
        sleep.wake();
        assert_eq!(sleep.nothing(), Next::Look(STEP));
        sleep.still(vec![], |_| false);
        assert_eq!(sleep.open(), [0_u32; 0]);
    }

    #[test]
    fn others_are_told_once_and_from_wherever_it_is() {
        let mut sleep: Sleep<u32> = Sleep::default();
        assert!(!sleep.stand_back(), "nobody relies on a relay that has not begun");
        sleep.wake();
        assert!(sleep.stand_back());
        assert!(!sleep.stand_back());
        for open in [vec![1], vec![]] {
            let mut sleep = lingered();
            sleep.left(open);
            sleep.nothing();
            assert!(sleep.stand_back());
            assert_eq!(sleep.nothing(), Next::Look(STEP), "and afterwards the way begins anew");
        }
    }

    #[test]
    fn pauses_grow_and_stay_short_for_a_second() {
        let ms = Duration::from_millis;
        assert_eq!([pause(0), pause(3), pause(4), pause(99)], [ms(1), ms(8), ms(10), ms(10)]);
        assert_eq!([pause(100), pause(103), pause(104), pause(u32::MAX)], [ms(16), ms(128), ms(250), ms(250)]);
    }
}
