//! A commit that nobody has heard the end of.

use crate::outbox::error::Error;
use crate::rule::closing::Closing;
use crate::rule::orders::Orders;

/// Orders whose close is being committed. Dropped before the answer, it says so: by deferred triggers a commit may take any
/// time, which no bound of the server's covers, and whoever waits gives up in the middle.
pub(super) struct Unknown<'a> {
    rule: &'a str,
    ids: Vec<&'a str>,
}

impl<'a> Unknown<'a> {
    /// Those that are closed when the commit arrives.
    pub(super) fn of(orders: &'a Orders, closings: &'a [(String, Closing)]) -> Self {
        let closed = closings.iter().filter(|(_, closing)| matches!(closing, Closing::Closed(_)));
        Self { rule: &orders.rule, ids: closed.map(|(id, _)| id.as_str()).collect() }
    }

    /// The answer has come: committed, refused, or too late to be begun. A lost connection is none.
    pub(super) fn known(mut self, committed: &Result<(), Error>) {
        if !committed.as_ref().is_err_and(|error| error.is_gone() && !error.is_silence()) {
            self.ids.clear();
        }
    }
}

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let (rule, orders) = (self.rule, self.ids.join(", "));
        tracing::warn!(
            rule,
            orders,
            "rule {rule}: whether these orders were changed is not known, the commit had no answer; they are looked at \
             again, and if they were, nothing else says so: {orders}"
        );
    }
}
