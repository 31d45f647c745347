//! Nobody is left waiting: the way to sleep, explored in every order of steps.
//!
//! Two producers; two relays, which drive the daemon's own [`Sleep`](duebox::relay::sleep) machine; a relay that crashes,
//! and one that stops or loses the broker. A step is what the real thing does in one statement. Producers may stay open
//! for ever and polls may be late for ever, so the promise is one about every state, not about the end.

mod producer;
mod relay;
mod steps;
mod world;

use producer::Script;
use relay::Flaw;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Instant;
use steps::Action;
use world::{EACH, Mark, Next, ROWS, Row, Stage, World};

/// What is explored.
#[derive(Debug, Clone)]
struct Case {
    name: &'static str,
    flaw: Flaw,
    producers: [Script; EACH],
    /// Whether a relay (first index) knows the tier of a producer's rows.
    knows: [[bool; EACH]; EACH],
    /// Whether a producer's rows are for later, and are put off when the broker refuses them.
    later: [bool; EACH],
    /// Crashes, and clean stops or losses of the broker, that may happen.
    crashes: u8,
    absences: u8,
}

const PLAIN: Case = Case {
    name: "one insert each",
    flaw: Flaw::None,
    producers: [Script::Once; EACH],
    knows: [[true; EACH]; EACH],
    later: [false; EACH],
    crashes: 0,
    absences: 0,
};

const SAVEPOINTS: Case = Case { name: "savepoints", producers: [Script::Savepoints; EACH], crashes: 1, ..PLAIN };

const AGAIN: Case =
    Case { name: "a second transaction", producers: [Script::Twice, Script::Once], crashes: 1, ..PLAIN };

const ABSENT: Case = Case { name: "a relay stops or loses the broker", crashes: 1, absences: 1, ..PLAIN };

/// The second relay does not know the tier of the first producer's rows, and those are for later.
const TIERS: Case = Case {
    name: "a tier that one relay knows, rows for later",
    knows: [[true, true], [false, true]],
    later: [true, false],
    crashes: 1,
    ..PLAIN
};

const ABSENT_LATER: Case = Case {
    name: "a relay stops or loses the broker, rows for later",
    producers: [Script::Twice, Script::Nothing],
    later: [true, false],
    ..ABSENT
};

const NEVER: &str = "no row waits for a poll unless a relay crashed";

impl Model for Case {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.crashes, self.absences)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.all_actions(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(self.after(world, &action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(NEVER, |case: &Self, world: &World| {
                world.crashes < case.crashes || (0..ROWS).all(|row| !case.forgotten(world, row))
            }),
            Property::always("and then one poll is enough", |case: &Self, world: &World| {
                (0..ROWS).all(|row| !case.forgotten(world, row) || case.found_by_a_poll(world, row))
            }),
        ];
        if self.flaw == Flaw::None {
            properties.extend(self.seen());
        }
        properties
    }
}

impl Case {
    /// What must have been seen somewhere, or the model shows nothing.
    fn seen(&self) -> Vec<Property<Self>> {
        let mut seen: Vec<Property<Self>> = vec![
            Property::sometimes("everybody sleeps", |_, world: &World| world.relays.iter().all(world::Relay::sleeps)),
            Property::sometimes("a relay waits for an insert that does not ring", |_, world: &World| {
                (0..EACH).any(|number| {
                    let waits = |relay: &world::Relay| relay.sleep.open().contains(&world.transaction(number));
                    world.producers[number].silent() && world.relays.iter().any(waits)
                })
            }),
            Property::sometimes("a relay sleeps on although it has claimed rows", |_, world: &World| {
                let claims = |number| world.rows.contains(&Row::Claimed(number));
                (0..EACH).any(|number| claims(number) && world.relays[number].sleeps())
            }),
            Property::sometimes("a row that rang for nobody is claimed", |_, world: &World| {
                (0..EACH).any(|number| {
                    let silent = world.producers[number].stage == Stage::Committed { silent: true };
                    silent && matches!(world.rows[world.transaction(number)], Row::Claimed(_))
                })
            }),
        ];
        if self.producers.contains(&Script::Savepoints) {
            seen.push(Property::sometimes("a rolled back savepoint takes the lock along", |_, world: &World| {
                let none = Stage::Open { top: Mark::None, sub: Mark::None };
                world.producers.iter().any(|producer| producer.stage == none)
            }));
        }
        if self.producers.iter().all(|script| *script != Script::Nothing) {
            seen.push(Property::sometimes("a relay claims while another has K", |_, world: &World| {
                let claims = |number| world.rows.contains(&Row::Claimed(number));
                (0..EACH).any(|number| claims(number) && world.key == Some(1 - number))
            }));
        }
        if self.crashes > 0 {
            seen.push(Property::sometimes("a crash leaves a row to a poll", |case: &Self, world: &World| {
                world.crashes < case.crashes && (0..ROWS).any(|row| case.forgotten(world, row))
            }));
        }
        if self.absences > 0 {
            seen.push(Property::sometimes("a sleeper is told that it is alone", |_, world: &World| {
                let told = world.relays.iter().any(|relay| relay.sleeps() && relay.alarm);
                told && world.relays.iter().any(|relay| relay.next == Next::Away)
            }));
        }
        seen
    }
}

#[test]
fn no_row_waits_for_a_poll_unless_a_relay_crashed() {
    for case in [SAVEPOINTS, AGAIN, ABSENT, TIERS, ABSENT_LATER] {
        let started = Instant::now();
        let checker = case.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let states = checker.unique_state_count();
        eprintln!("{}: {states} states in {:?}", checker.model().name, started.elapsed());
        checker.assert_properties();
        assert!(states > 5_000, "the model has lost its way");
    }
}

#[test]
fn a_way_to_sleep_that_leaves_out_a_step_leaves_a_row_waiting() {
    for (flaw, case) in [
        (Flaw::NoWait, PLAIN),
        (Flaw::SnapshotXmax, PLAIN),
        (Flaw::ReadFirst, PLAIN),
        (Flaw::NoFinalLook, PLAIN),
        (Flaw::NoRingForUnclaimed, TIERS),
        (Flaw::RingForDueOnly, TIERS),
        (Flaw::TellWithKeyOnly, ABSENT),
        (Flaw::TellAwakeOnly, ABSENT_LATER),
        (Flaw::TakeAfterStop, ABSENT),
    ] {
        let case = Case { flaw, ..case };
        let checker = case.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
        let found = checker.discovery(NEVER);
        let path = found.unwrap_or_else(|| panic!("{flaw:?} is not found in {} states", checker.unique_state_count()));
        eprintln!("{flaw:?}, in {} states: {:?}", checker.unique_state_count(), path.into_actions());
    }
}
