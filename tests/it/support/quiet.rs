//! Quiet: a test that measures time runs alone, so that it measures duebox and not its neighbours.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};

/// Who is running now.
struct Running {
    shared: usize,
    alone: bool,
    /// Tests that wait to be alone; nobody starts before them.
    waiting: usize,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { shared: 0, alone: false, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Turns of the test on this thread: its second rig is no second test.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Held by a running test.
pub(crate) struct Turn {
    alone: bool,
    counted: bool,
}

impl Turn {
    /// Beside others.
    pub(crate) fn shared() -> Self {
        if HELD.replace(HELD.get() + 1) > 0 {
            return Self { alone: false, counted: false };
        }
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |running: &mut Running| running.alone || running.waiting > 0;
        let mut running = CHANGED.wait_while(running, busy).unwrap_or_else(PoisonError::into_inner);
        running.shared += 1;
        Self { alone: false, counted: true }
    }

    /// With nobody beside it.
    pub(crate) fn alone() -> Self {
        assert_eq!(HELD.replace(HELD.get() + 1), 0, "before the first rig of a test");
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.waiting += 1;
        let busy = |running: &mut Running| running.alone || running.shared > 0;
        let mut running = CHANGED.wait_while(running, busy).unwrap_or_else(PoisonError::into_inner);
        running.waiting -= 1;
        running.alone = true;
        Self { alone: true, counted: true }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(1));
        if !self.counted {
            return;
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.alone {
            running.alone = false;
        } else {
            running.shared -= 1;
        }
        CHANGED.notify_all();
    }
}
