//! Waiting for things to happen, with a deadline; never for time to pass.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Runs a future to its end from plain and async tests alike, on a thread and a runtime of its own.
pub(crate) fn block_on<F>(future: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    let on_its_own = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(future)
    };
    std::thread::scope(|scope| scope.spawn(on_its_own).join().unwrap())
}

/// Polls a condition until it holds; panics at the caller's line when it does not `within`.
#[track_caller]
pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Polls an async condition until it holds; panics naming the caller's line when it does not `within`.
///
/// ```ignore
/// wait_until(secs(5), async || db.count("sent_at is not null").await == 3).await;
/// ```
#[track_caller]
pub(crate) fn wait_until(within: Duration, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + within;
        while !holds().await {
            assert!(Instant::now() < deadline, "not within {within:?}: {caller}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Shorthand for whole seconds.
pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Shorthand for milliseconds.
pub(crate) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
