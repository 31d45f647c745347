//! Who may do what, and what the world is like after it.

use super::relay::{self, Flaw};
use super::world::{EACH, Life, Next, PRODUCER_OF, Producer, Row, World};
use super::{Case, producer};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Producer(usize, producer::Step),
    /// A row falls due.
    Due(usize),
    /// A relay's turn begins, because something woke it or by itself.
    Turn(usize),
    /// A relay's next statement.
    Go(usize),
    /// A relay that has claimed few rows leaves it at that, and looks again.
    Stay(usize),
    /// The try for K fails: a producer has it, shared, for a moment.
    KeyIsTouched(usize),
    /// A relay that is awake looks for tiers that it does not claim.
    LookForUnclaimed(usize),
    /// What becomes of a claimed row.
    Settle(usize, Row),
    /// A relay loses the broker, and has it again.
    StandBack(usize),
    Return(usize),
    Stop(usize),
    Crash(usize),
}

impl Case {
    pub(super) fn all_actions(&self, world: &World, actions: &mut Vec<Action>) {
        for number in 0..EACH {
            actions.extend(
                producer::steps(world, number, self.producers[number])
                    .into_iter()
                    .map(|step| Action::Producer(number, step)),
            );
            self.relay_actions(world, number, actions);
        }
        for (row, state) in world.rows.iter().enumerate() {
            match state {
                Row::None | Row::Due => {}
                Row::Future => actions.push(Action::Due(row)),
                Row::Claimed(_) => {
                    actions.extend([Row::None, Row::Due].map(|fate| Action::Settle(row, fate)));
                    // The broker refuses it: again later.
                    if self.later[PRODUCER_OF[row]] {
                        actions.push(Action::Settle(row, Row::Future));
                    }
                }
            }
        }
    }

    pub(super) fn after(&self, world: &World, action: &Action) -> World {
        let mut world = world.clone();
        match *action {
            Action::Producer(number, step) => {
                if self.flaw == Flaw::SnapshotXmax {
                    producer::number(&mut world, number, step);
                }
                let row = if self.later[number] { Row::Future } else { Row::Due };
                producer::take(&mut world, number, step, row);
            }
            Action::Due(row) => world.rows[row] = Row::Due,
            Action::Turn(number) => self.turn(&mut world, number),
            Action::Go(number) => self.go(&mut world, number),
            Action::Stay(number) => world.relays[number].next = Next::Look,
            Action::KeyIsTouched(number) => world.relays[number].next = Next::Rest,
            Action::LookForUnclaimed(number) => self.ring_for_unclaimed(&mut world, number, false),
            Action::Settle(row, fate) => world.rows[row] = fate,
            Action::StandBack(number) => {
                world.absences -= 1;
                self.stand_back(&mut world, number);
            }
            Action::Return(number) => world.relays[number].next = Next::Rest,
            Action::Stop(number) => {
                world.absences -= u8::from(world.relays[number].life == Life::Up);
                self.stop(&mut world, number);
            }
            Action::Crash(number) => {
                world.crashes -= 1;
                relay::end(&mut world, number);
            }
        }
        if self.knows[0] == self.knows[1] { world.sorted() } else { world }
    }

    fn relay_actions(&self, world: &World, number: usize, actions: &mut Vec<Action>) {
        let relay = &world.relays[number];
        match relay.next {
            Next::Rest if relay.life == Life::Up => {
                actions.push(Action::Turn(number));
                actions.extend((!relay.sleep.asleep()).then_some(Action::LookForUnclaimed(number)));
                actions.extend((world.absences > 0).then_some(Action::StandBack(number)));
            }
            Next::Rest => {}
            Next::Away => actions.extend((relay.life == Life::Up).then_some(Action::Return(number))),
            Next::Look
            | Next::Claimed
            | Next::TakeKey
            | Next::ReleaseKey
            | Next::ReadLocks
            | Next::LookForUnclaimed
            | Next::TellOthers => {
                actions.push(Action::Go(number));
            }
        }
        actions.extend((relay.next == Next::Claimed).then_some(Action::Stay(number)));
        if relay.next == Next::TakeKey && world.producers.iter().any(Producer::touches_key) {
            actions.push(Action::KeyIsTouched(number));
        }
        let claims = world.rows.contains(&Row::Claimed(number));
        let stops = match relay.life {
            Life::Up => world.absences > 0,
            Life::Telling => true,
            // The workers end first.
            Life::Told => !claims && matches!(relay.next, Next::Rest | Next::Away),
            Life::Gone => false,
        };
        actions.extend(stops.then_some(Action::Stop(number)));
        actions.extend((world.crashes > 0 && relay.life != Life::Gone).then_some(Action::Crash(number)));
    }
}
