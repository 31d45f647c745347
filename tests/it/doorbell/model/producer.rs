//! What producers do.

use super::world::{EACH, Mark, Row, Stage, World};

/// A producer's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// An insert begins, in a subtransaction or not: it takes the table's lock.
    Insert {
        sub: bool,
    },
    /// Its last act: the trigger's condition, and the notification if K was free.
    Trigger,
    /// `ROLLBACK TO SAVEPOINT`: the rows, the lock and the notification of the subtransaction go.
    RollbackTo,
    Rollback,
    /// The rows become visible and notifications are delivered.
    Commit,
    /// And only then the locks are given back.
    Unlock,
}

/// What a producer does in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Nothing,
    /// One transaction, one insert.
    Once,
    /// Two of them, one after the other.
    Twice,
    /// One transaction, with inserts outside and inside a subtransaction that may be rolled back and begun anew.
    Savepoints,
}

/// The steps that a producer may take.
pub(super) fn steps(world: &World, producer: usize, script: Script) -> Vec<Step> {
    let savepoints = script == Script::Savepoints;
    let transactions = match script {
        Script::Nothing => 0,
        Script::Once | Script::Savepoints => 1,
        Script::Twice => 2,
    };
    let me = &world.producers[producer];
    match me.stage {
        Stage::Between => {
            let steps = [Step::Insert { sub: false }, Step::Insert { sub: true }];
            let begins = if me.ended < transactions { 1 + usize::from(savepoints) } else { 0 };
            steps.into_iter().take(begins).collect()
        }
        Stage::Open { .. } if me.touches_key() => vec![Step::Trigger],
        Stage::Open { top, sub } => {
            let mut steps = vec![Step::Commit, Step::Rollback];
            steps.extend((savepoints && top == Mark::None).then_some(Step::Insert { sub: false }));
            steps.extend((savepoints && sub == Mark::None).then_some(Step::Insert { sub: true }));
            // After a later insert outside this is more than SQL can say: nothing hangs on that.
            steps.extend((sub != Mark::None).then_some(Step::RollbackTo));
            steps
        }
        Stage::Committed { .. } => vec![Step::Unlock],
    }
}

/// Takes a step. `row` is what the transaction leaves when it commits.
pub(super) fn take(world: &mut World, producer: usize, step: Step, row: Row) {
    let transaction = world.transaction(producer);
    let free = world.key.is_none();
    let me = &mut world.producers[producer];
    let (mut top, mut sub) = match me.stage {
        Stage::Open { top, sub } => (top, sub),
        Stage::Between | Stage::Committed { .. } => (Mark::None, Mark::None),
    };
    let seen = if free { Mark::Rings } else { Mark::Silent };
    match step {
        Step::Insert { sub: true } => sub = Mark::Running,
        Step::Insert { sub: false } => top = Mark::Running,
        Step::Trigger if sub == Mark::Running => sub = seen,
        Step::Trigger => top = seen,
        Step::RollbackTo => sub = Mark::None,
        Step::Commit if top != Mark::None || sub != Mark::None => {
            let rings = top == Mark::Rings || sub == Mark::Rings;
            me.stage = Stage::Committed { silent: !rings };
            world.rows[transaction] = row;
            if rings {
                world.ring(None, false);
            }
            return;
        }
        Step::Commit | Step::Rollback | Step::Unlock => {
            (me.stage, me.ended) = (Stage::Between, me.ended + 1);
            return;
        }
    }
    me.stage = Stage::Open { top, sub };
}

/// Keeps the books of transaction ids: one is given out at the first insert, and is completed with the transaction.
pub(super) fn number(world: &mut World, producer: usize, step: Step) {
    match step {
        Step::Insert { .. } if world.xids[producer] == 0 => {
            let last = (0..EACH).map(|other| world.xids[other]).max().unwrap_or(0).max(world.completed);
            world.xids[producer] = last + 1;
        }
        // Completed for snapshots is completed: the locks are another matter.
        Step::Commit | Step::Rollback => {
            world.completed = world.completed.max(world.xids[producer]);
            world.xids[producer] = 0;
        }
        Step::Insert { .. } | Step::Trigger | Step::RollbackTo | Step::Unlock => {}
    }
}
