//! The shutdown token: raised once, seen by everyone.

use tokio_util::sync::CancellationToken;

/// Tells every loop to finish what is in flight and return.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
}

impl Stop {
    /// Raises it.
    pub fn raise(&self) {
        self.token.cancel();
    }

    /// Whether it has been raised.
    #[must_use]
    pub fn raised(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when it is raised.
    pub async fn wait(&self) {
        self.token.cancelled().await;
    }

    /// Waits for `work`, or for the stop: `None` means the stop came first and `work` was dropped.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(work).await
    }
}
