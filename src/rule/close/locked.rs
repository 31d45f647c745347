//! The orders that a transaction holds, and the ids of their events.

use tokio_postgres::Row;
use uuid::Uuid;

/// Orders that a transaction holds.
#[derive(Default)]
pub(super) struct Locked {
    pub(super) ids: Vec<String>,
    pub(super) message_ids: Vec<Uuid>,
}

impl Locked {
    /// Each close has an event of its own. That no order is told of twice is not the id's doing: the event is written in
    /// the transaction that changes the order, and to a changed order the rule no longer applies. Made of order and due it
    /// would keep silent about a reminder that comes again, and about an order that was opened again.
    pub(super) fn read(rows: &[Row]) -> Result<Self, tokio_postgres::Error> {
        let mut locked = Self::default();
        for row in rows {
            let id: String = row.try_get("id")?;
            // Where the id is no key, orders that share it are next to each other, and are closed together.
            if locked.ids.last() != Some(&id) {
                locked.message_ids.push(Uuid::new_v4());
                locked.ids.push(id);
            }
        }
        Ok(locked)
    }

    /// The id of the event of one of them.
    pub(super) fn message_id(&self, id: &str) -> Option<Uuid> {
        let place = self.ids.iter().position(|locked| locked == id);
        place.and_then(|place| self.message_ids.get(place)).copied()
    }
}
