//! Figures that cost a query are counted when somebody asks, and not while nobody does.

use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Where readers ask and the one who counts answers.
#[derive(Debug)]
pub struct Fresh {
    /// How long a reader waits for what it asked for; after that it sees what is known.
    patience: Duration,
    asked: Notify,
    counted: watch::Sender<()>,
}

impl Fresh {
    /// Whose readers wait so long.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self { patience, asked: Notify::default(), counted: watch::Sender::default() }
    }

    /// Asks for a count and waits for it.
    pub async fn ask(&self) {
        let mut counted = self.counted.subscribe();
        self.asked.notify_one();
        // Late or never: the reader sees what is known by then.
        drop(tokio::time::timeout(self.patience, counted.changed()).await);
    }

    /// Resolves when somebody asks.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// A count is done, or the last one still holds.
    pub fn counted(&self) {
        self.counted.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_waits_for_the_count_that_it_asked_for() {
        let fresh = Fresh::new(Duration::from_secs(60));
        let count = async {
            fresh.asked().await;
            fresh.counted();
        };
        tokio::join!(fresh.ask(), count);
    }
}
