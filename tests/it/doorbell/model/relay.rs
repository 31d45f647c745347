//! What relays do. Going to sleep is not described here: it is the daemon's own machine.

use super::Case;
use super::world::{EACH, Life, Next, PRODUCER_OF, ROWS, Relay, Row, World};
use duebox::relay::sleep;

/// What is wrong with a relay, to see that the model finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Open transactions are not waited for.
    NoWait,
    /// Those below a snapshot's xmax are: the last completed + 1.
    SnapshotXmax,
    /// The locks are read, then K is given back.
    ReadFirst,
    /// Asleep as soon as nobody is waited for, without another look.
    NoFinalLook,
    /// Nobody rings for a tier that another relay claims,
    NoRingForUnclaimed,
    /// or only for rows that are due already.
    RingForDueOnly,
    /// A relay that stops or stands back tells the others only if it has K,
    TellWithKeyOnly,
    /// or only if it is awake.
    TellAwakeOnly,
    /// A relay that is stopping may take K after it has given it back.
    TakeAfterStop,
}

impl Case {
    fn knows(&self, relay: usize, row: usize) -> bool {
        self.knows[relay][PRODUCER_OF[row]]
    }

    fn rows_of(&self, relay: usize) -> impl Iterator<Item = usize> + '_ {
        (0..ROWS).filter(move |row| self.knows(relay, *row))
    }

    /// A pause, a ring or a timer has ended. A poll may always be the reason.
    pub(super) fn turn(&self, world: &mut World, number: usize) {
        let now = world.inserting();
        let relay = &mut world.relays[number];
        relay.ring = false;
        if std::mem::take(&mut relay.alarm) {
            relay.sleep.wake();
        }
        if relay.sleep.open().is_empty() {
            return self.look(world, number);
        }
        relay.sleep.still(now, |_| false);
        // The same transactions, without the count of pauses, which only makes them longer: so states are finite.
        let open = relay.sleep.open().to_vec();
        relay.sleep.left(open);
        relay.next = Next::Look;
        if self.flaw == Flaw::NoFinalLook && relay.sleep.open().is_empty() {
            self.doze(relay);
        }
    }

    /// The next statement of a turn.
    pub(super) fn go(&self, world: &mut World, number: usize) {
        match world.relays[number].next {
            Next::Rest | Next::Away => {}
            Next::Look => self.look(world, number),
            // Rows came fast. If they did not, it only looks again.
            Next::Claimed => {
                world.relays[number].sleep.wake();
                world.relays[number].next = Next::TakeKey;
            }
            Next::TakeKey => {
                if world.key.is_none() && world.relays[number].may_take(self.flaw) {
                    world.key = Some(number);
                }
                world.relays[number].next = Next::Rest;
            }
            Next::ReleaseKey => {
                world.release(number);
                let read = self.flaw == Flaw::ReadFirst;
                world.relays[number].next = if read { Next::Rest } else { Next::ReadLocks };
            }
            Next::ReadLocks => self.read_locks(world, number),
            Next::LookForUnclaimed => {
                self.ring_for_unclaimed(world, number, true);
                world.relays[number].next = Next::Rest;
            }
            Next::TellOthers => {
                world.ring(Some(number), true);
                world.relays[number].next = Next::Away;
            }
        }
    }

    /// Looks and claims. In between another relay may take what was seen, which is no different from its taking it
    /// just before.
    fn look(&self, world: &mut World, number: usize) {
        let rows = world.rows;
        let due = |row: &usize| rows[*row] == Row::Due;
        for row in self.rows_of(number).filter(due) {
            world.rows[row] = Row::Claimed(number);
        }
        let relay = &mut world.relays[number];
        if self.rows_of(number).any(|row| due(&row)) {
            relay.next = Next::Claimed;
        } else {
            self.doze(relay);
        }
        // Both matter to a sleeper only.
        let asleep = relay.sleep.asleep();
        relay.locked = asleep && self.rows_of(number).any(|row| matches!(rows[row], Row::Claimed(_)));
        relay.timers = std::array::from_fn(|row| asleep && self.knows(number, row) && rows[row] == Row::Future);
    }

    /// Nothing was claimed. Looks that are only repeated are one here: they change nothing, nobody sees how many they
    /// were, and the one that is left may come as late as the last of them would have.
    fn doze(&self, relay: &mut Relay) {
        let was_asleep = relay.sleep.asleep();
        let mut next = relay.sleep.nothing();
        while matches!(next, sleep::Next::Look(_)) {
            next = relay.sleep.nothing();
        }
        relay.next = match next {
            sleep::Next::Leave if self.flaw == Flaw::ReadFirst => Next::ReadLocks,
            sleep::Next::Leave => Next::ReleaseKey,
            sleep::Next::Sleep if !was_asleep => Next::LookForUnclaimed,
            sleep::Next::Sleep | sleep::Next::Wait(_) | sleep::Next::Look(_) => Next::Rest,
        };
    }

    fn read_locks(&self, world: &mut World, number: usize) {
        let mut open = world.inserting();
        if self.flaw == Flaw::NoWait {
            open.clear();
        } else if self.flaw == Flaw::SnapshotXmax {
            let below = |xid: u8| xid != 0 && xid < world.completed + 1;
            open.retain(|transaction| below(world.xids[PRODUCER_OF[*transaction]]));
        }
        let relay = &mut world.relays[number];
        relay.sleep.left(open);
        relay.next = if self.flaw == Flaw::ReadFirst { Next::ReleaseKey } else { Next::Rest };
        if self.flaw == Flaw::NoFinalLook && relay.sleep.open().is_empty() {
            self.doze(relay);
        }
    }

    /// Rings if there are rows that this relay does not claim: now and then while awake for those that are due, and for
    /// all when it falls asleep.
    pub(super) fn ring_for_unclaimed(&self, world: &mut World, number: usize, falls_asleep: bool) {
        let waits = |row: usize| match world.rows[row] {
            Row::None => false,
            Row::Future => falls_asleep && self.flaw != Flaw::RingForDueOnly,
            Row::Due | Row::Claimed(_) => true,
        };
        let rings = (0..ROWS).any(|row| !self.knows(number, row) && waits(row));
        if rings && self.flaw != Flaw::NoRingForUnclaimed {
            world.ring(Some(number), false);
        }
    }

    /// The broker is away for this relay, or its database connections are.
    pub(super) fn stand_back(&self, world: &mut World, number: usize) {
        let heard = self.has_to_tell(world, number);
        let tell = world.relays[number].sleep.stand_back() && heard;
        world.release(number);
        (world.relays[number].ring, world.relays[number].alarm) = (false, false);
        world.relays[number].next = if tell { Next::TellOthers } else { Next::Away };
    }

    /// It always has to.
    fn has_to_tell(&self, world: &World, number: usize) -> bool {
        let with_key = self.flaw != Flaw::TellWithKeyOnly || world.key == Some(number);
        let awake = self.flaw != Flaw::TellAwakeOnly || !world.relays[number].sleep.asleep();
        with_key && awake
    }

    /// A clean stop, step by step; a turn that is under way goes on beside it.
    pub(super) fn stop(&self, world: &mut World, number: usize) {
        let Relay { life, next, .. } = world.relays[number];
        let tell = self.has_to_tell(world, number);
        world.relays[number] = Relay::new(match life {
            Life::Up => {
                world.release(number);
                if tell { Life::Telling } else { Life::Told }
            }
            Life::Telling => {
                world.ring(Some(number), true);
                Life::Told
            }
            Life::Told | Life::Gone => Life::Gone,
        });
        // The rest of a turn is of no use to anybody, but for a claim that is being made.
        if matches!(next, Next::Look | Next::Claimed | Next::TakeKey) {
            world.relays[number].next = next;
        }
    }

    /// Whether every relay that could claim the row sleeps, and nothing is going to wake it but its poll.
    pub(super) fn forgotten(&self, world: &World, row: usize) -> bool {
        let quiet = |number: usize| {
            let (relay, knows) = (&world.relays[number], self.knows(number, row));
            match relay.life {
                // It will ring for what it does not claim, or claim it.
                Life::Up if relay.next == Next::Away => true,
                Life::Up => {
                    let wakes = relay.ring || relay.locked || relay.timers[row];
                    relay.sleeps() && !relay.alarm && !(knows && wakes)
                }
                Life::Telling => false,
                Life::Told => relay.next == Next::Rest,
                Life::Gone => true,
            }
        };
        let claimable = (0..EACH).any(|number| self.knows(number, row) && world.relays[number].present());
        world.rows[row] == Row::Due && claimable && (0..EACH).all(quiet)
    }

    /// Whether a poll of each survivor that could claim the row does claim it.
    pub(super) fn found_by_a_poll(&self, world: &World, row: usize) -> bool {
        (0..EACH).filter(|number| self.knows(*number, row) && world.relays[*number].present()).all(|number| {
            let mut world = world.clone();
            self.turn(&mut world, number);
            world.rows[row] == Row::Claimed(number)
        })
    }
}

impl Relay {
    fn may_take(&self, flaw: Flaw) -> bool {
        self.life == Life::Up || flaw == Flaw::TakeAfterStop
    }
}

/// A process ends: its sessions end, K is free, and its claims are rolled back.
pub(super) fn end(world: &mut World, number: usize) {
    world.release(number);
    for row in &mut world.rows {
        if *row == Row::Claimed(number) {
            *row = Row::Due;
        }
    }
    world.relays[number] = Relay::new(Life::Gone);
}
