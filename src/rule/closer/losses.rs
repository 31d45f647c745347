//! Connections that are lost in the middle of a close. An outage takes a few; a way to the database that takes longer than
//! the server lets a relay be silent takes all, and nothing else shows it.

use crate::outbox::error::Error;
use crate::rule::close::{FUNCTION, UPDATE};
use std::sync::atomic::{AtomicU32, Ordering};

/// So many in a row are no accident: twice the slots that there are by default.
const MANY: u32 = 10;

/// Closes in a row that lost their connection.
#[derive(Debug, Default)]
pub(super) struct Losses(AtomicU32);

impl Losses {
    /// A close came to its end.
    pub(super) fn none(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// A close did not: many in a row are named, once.
    pub(super) fn one(&self, rule: &str, error: &Error) {
        let begun = !matches!(error, Error::Connect(_) | Error::ReadOnly { .. });
        if begun && self.0.fetch_add(1, Ordering::Relaxed) + 1 == MANY {
            tracing::warn!(
                rule,
                %error,
                "rule {rule}: the last {MANY} closes lost their connection to the database: {error}; the server ends a close \
                 whose relay is silent for {:?} ({:?} with a `function`), so a round trip to it must take less; a trigger \
                 that ends its own session does the same",
                UPDATE.silence,
                FUNCTION.silence
            );
        }
    }
}
