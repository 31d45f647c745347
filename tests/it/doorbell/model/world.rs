//! The world of the model: what the database knows, and where everybody is.

use duebox::relay::sleep::Sleep;

/// Producers, and relays.
pub(super) const EACH: usize = 2;

/// Transactions, by the producer that has them one after the other. Each leaves at most one row of the same number.
pub(super) const PRODUCER_OF: [usize; 3] = [0, 1, 0];

/// Rows in all.
pub(super) const ROWS: usize = PRODUCER_OF.len();

/// Everything. What the real thing does in one statement is one step from one world to the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) producers: [Producer; EACH],
    pub(super) rows: [Row; ROWS],
    pub(super) relays: [Relay; EACH],
    /// The relay that holds K.
    pub(super) key: Option<usize>,
    /// Transaction ids, for the variant that looks at them: of each producer's open transaction, and the last that
    /// was completed.
    pub(super) xids: [u8; EACH],
    pub(super) completed: u8,
    /// Faults that may still happen.
    pub(super) crashes: u8,
    pub(super) absences: u8,
}

/// The row of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Row {
    /// Not committed, rolled back, or sent.
    None,
    /// Committed, and not due yet.
    Future,
    Due,
    /// Locked by that relay's open claim.
    Claimed(usize),
}

/// What an insert left in its (sub)transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Mark {
    None,
    /// The statement runs: it has the table's lock, and has not come to the trigger.
    Running,
    /// The trigger saw K held.
    Silent,
    /// The trigger saw K free: a notification waits for the commit.
    Rings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// No transaction is open.
    Between,
    /// One is; inserts may be in a subtransaction as well.
    Open { top: Mark, sub: Mark },
    /// Committed and visible, the locks not yet given back. Whether it did not ring.
    Committed { silent: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Producer {
    /// Transactions that have ended.
    pub(super) ended: usize,
    pub(super) stage: Stage,
}

impl Producer {
    /// Whether it holds the outbox's `RowExclusiveLock`. One taken in a subtransaction goes with it.
    pub(super) fn locks(&self) -> bool {
        match self.stage {
            Stage::Between => false,
            Stage::Open { top, sub } => top != Mark::None || sub != Mark::None,
            Stage::Committed { .. } => true,
        }
    }

    /// Whether the trigger's condition is being computed: it holds K shared for that moment.
    pub(super) fn touches_key(&self) -> bool {
        matches!(self.stage, Stage::Open { top: Mark::Running, .. } | Stage::Open { sub: Mark::Running, .. })
    }

    /// Whether it has an insert behind it that will not ring.
    pub(super) fn silent(&self) -> bool {
        match self.stage {
            Stage::Between => false,
            Stage::Open { top, sub } => top == Mark::Silent || sub == Mark::Silent,
            Stage::Committed { silent } => silent,
        }
    }
}

/// How a relay's process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Life {
    Up,
    /// Asked to stop, and K is given back for good; the others are not told yet.
    Telling,
    /// They are. What is in flight is brought to its end.
    Told,
    /// It ended: cleanly, or not.
    Gone,
}

/// The statement that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Next {
    /// None before a pause, a ring or a timer has ended: then a turn begins.
    Rest,
    Look,
    /// Rows were claimed: it stays awake for more, or only looks again.
    Claimed,
    TakeKey,
    ReleaseKey,
    ReadLocks,
    LookForUnclaimed,
    /// Tell the others that it stands back.
    TellOthers,
    /// None, while the broker is away.
    Away,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    pub(super) life: Life,
    pub(super) next: Next,
    /// The machine that the daemon runs.
    pub(super) sleep: Sleep<usize>,
    /// A ring, or an alarm, is on its way or waits to be heard.
    pub(super) ring: bool,
    pub(super) alarm: bool,
    /// The last look saw due rows that were locked: looks are repeated in short steps.
    pub(super) locked: bool,
    /// Rows that were not due at the last look: there is a timer for the first of them.
    pub(super) timers: [bool; ROWS],
}

impl Relay {
    pub(super) fn new(life: Life) -> Self {
        let timers = [false; ROWS];
        Self { life, next: Next::Rest, sleep: Sleep::default(), ring: false, alarm: false, locked: false, timers }
    }

    /// Asleep, and not even in the middle of a look.
    pub(super) fn sleeps(&self) -> bool {
        self.life == Life::Up && self.next == Next::Rest && self.sleep.asleep()
    }

    /// Could claim, if it looked.
    pub(super) fn present(&self) -> bool {
        self.life == Life::Up && self.next != Next::Away
    }
}

impl World {
    pub(super) fn new(crashes: u8, absences: u8) -> Self {
        Self {
            producers: [const { Producer { ended: 0, stage: Stage::Between } }; EACH],
            rows: [Row::None; ROWS],
            relays: [Relay::new(Life::Up), Relay::new(Life::Up)],
            key: None,
            xids: [0; EACH],
            completed: 0,
            crashes,
            absences,
        }
    }

    /// The transaction that a producer is in.
    pub(super) fn transaction(&self, producer: usize) -> usize {
        producer + EACH * self.producers[producer].ended
    }

    /// What `pg_locks` says.
    pub(super) fn inserting(&self) -> Vec<usize> {
        let locking = (0..EACH).filter(|producer| self.producers[*producer].locks());
        locking.map(|producer| self.transaction(producer)).collect()
    }

    /// Delivers a notification to everybody who listens; a relay's own is ignored. One that is not asleep does not
    /// need a ring, only an alarm: what it rang for was committed before, and the last look is still to come.
    pub(super) fn ring(&mut self, from: Option<usize>, over: bool) {
        for (number, relay) in self.relays.iter_mut().enumerate() {
            if relay.present() && Some(number) != from {
                relay.ring |= over || relay.sleep.asleep();
                relay.alarm |= over;
            }
        }
    }

    /// The same with the relays in a fixed order, where it does not matter which is which.
    pub(super) fn sorted(mut self) -> Self {
        let order = |relay: &Relay| {
            let Relay { life, next, sleep, ring, alarm, locked, .. } = relay;
            (*life, *next, *ring, *alarm, *locked, sleep.asleep(), sleep.open().len())
        };
        if order(&self.relays[0]) > order(&self.relays[1]) {
            self.relays.reverse();
            self.key = self.key.map(|relay| 1 - relay);
            for row in &mut self.rows {
                if let Row::Claimed(relay) = row {
                    *relay = 1 - *relay;
                }
            }
        }
        self
    }

    /// Gives K back, if that relay has it.
    pub(super) fn release(&mut self, relay: usize) {
        if self.key == Some(relay) {
            self.key = None;
        }
    }
}
