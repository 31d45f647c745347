//! The overdue orders of a rule, a page at a time.

use super::{Broken, Sweep};
use crate::rule::orders::{Orders, Place};

/// The overdue orders of a rule, oldest first.
pub(super) struct Pages<'a> {
    sweep: &'a Sweep,
    orders: &'a Orders,
    /// They are to be closed, so that the close asks the guard where it cannot be asked here.
    to_close: bool,
    last: Option<Place>,
    ended: bool,
}

impl<'a> Pages<'a> {
    /// Those behind `after`.
    pub(super) fn new(sweep: &'a Sweep, orders: &'a Orders, to_close: bool, after: Option<Place>) -> Self {
        Self { sweep, orders, to_close, last: after, ended: false }
    }

    /// The next page: its orders to which the rule applies, perhaps none. None at all behind the last page.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Place>>, Broken> {
        if self.ended {
            return Ok(None);
        }
        let Sweep { db, batch, .. } = self.sweep;
        let page = (self.last.as_ref(), *batch);
        let found = match self.to_close {
            true => self.sweep.patient(self.orders.find_to_close(db, page)).await??,
            false => self.sweep.patient(self.orders.find(db, page)).await??,
        };
        self.ended = found.len() < *batch;
        if let Some(last) = found.last() {
            self.last = Some(last.place.clone());
        }
        Ok(Some(found.into_iter().filter(|found| found.applies).map(|found| found.place).collect()))
    }

    /// The last order so far, whether the rule applies to it or not.
    pub(super) fn last(self) -> Option<Place> {
        self.last
    }

    /// Where another pass would go on; none at the end.
    pub(super) fn rest(self) -> Option<Place> {
        self.last.filter(|_| !self.ended)
    }
}
