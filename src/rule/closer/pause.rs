//! The pause of the closer. Each close reads it under its lock; once one has met it, it is asked for by itself, now and then
//! and not for each message, until it is over.

use crate::outbox::connect::Db;
use crate::outbox::pauses::{self, What};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How soon an end is noticed.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// What is known of the pause.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// When it was last seen, or looked for; none: there is none, as far as is known.
    seen: Mutex<Option<Instant>>,
}

impl Pause {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A close has met it.
    pub(super) fn met(&self) {
        self.lock().get_or_insert_with(Instant::now);
    }

    /// Whether it is in force. One asks for all; the others go by what was known.
    pub(super) async fn holds(&self, db: &Db) -> bool {
        {
            let mut seen = self.lock();
            match *seen {
                None => return false,
                Some(at) if at.elapsed() < LOOK => return true,
                Some(_) => *seen = Some(Instant::now()),
            }
        }
        let over = match pauses::list(db).await {
            Ok(pauses) => !pauses.iter().any(|pause| pause.is_of(&What::Closer)),
            Err(error) => {
                tracing::debug!(%error, "whether the closer is still paused is not known: {error}");
                false
            }
        };
        match over {
            true => *self.lock() = None,
            false => tracing::debug!("the closer is paused"),
        }
        !over
    }
}
