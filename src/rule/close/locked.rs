//! The orders that a transaction holds, and the ids of their events.

use crate::outbox::decode::micros;
use std::time::SystemTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// Makes the message ids of events: the same close has the same id on every relay. Any fixed value does.
const NAMESPACE: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0001);

/// Orders that a transaction holds.
#[derive(Default)]
pub(super) struct Locked {
    pub(super) ids: Vec<String>,
    pub(super) message_ids: Vec<Uuid>,
}

impl Locked {
    pub(super) fn read(rows: &[Row], rule: &str) -> Result<Self, tokio_postgres::Error> {
        let mut locked = Self::default();
        for row in rows {
            let (id, due): (String, Option<SystemTime>) = (row.try_get("id")?, row.try_get("due")?);
            // Without a due it is not closed.
            locked.message_ids.push(message_id(rule, &id, due.unwrap_or(SystemTime::UNIX_EPOCH)));
            locked.ids.push(id);
        }
        Ok(locked)
    }

    /// The id of the event of one of them.
    pub(super) fn message_id(&self, id: &str) -> Option<Uuid> {
        let place = self.ids.iter().position(|locked| locked == id);
        place.and_then(|place| self.message_ids.get(place)).copied()
    }
}

/// The id of the event of one close.
fn message_id(rule: &str, id: &str, due: SystemTime) -> Uuid {
    // NUL is in no name and no id, so no two closes have one text.
    Uuid::new_v5(&NAMESPACE, format!("{rule}\0{id}\0{}", micros(due)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_close_has_one_message_id_and_no_other_close_has_it() {
        let due = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_001);
        let id = message_id("unpaid", "42", due);
        assert_eq!(id, message_id("unpaid", "42", due));
        // Pinned: another version of duebox must make the same one, or an upgrade forks a chain.
        assert_eq!(id.to_string(), "1b6da40e-dda9-590c-a0ba-d4651317269c");
        for other in [
            message_id("unpaid", "43", due),
            message_id("unpaid4", "2", due),
            message_id("unpaid", "42", due + Duration::from_micros(1)),
        ] {
            assert_ne!(id, other);
        }
    }
}
