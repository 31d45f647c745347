//! Whether the trigger on the outbox rings for a relay of this schema.

use std::time::SystemTime;
use tokio_postgres::Row;

/// Asks for the facts; `$1` is the schema.
pub(crate) const DOORBELL: &str = include_str!("../../../sql/doorbell.sql");

/// What the server says about the doorbell.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(super) key: [i32; 2],
    pub(super) pid: i32,
    pub(super) since: SystemTime,
    pub(super) read_only: bool,
    database: String,
    has_outbox: bool,
    definition: Option<String>,
}

impl Facts {
    /// Reads the answer to [`DOORBELL`].
    pub(crate) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            key: [row.try_get("key1")?, row.try_get("key2")?],
            pid: row.try_get("pid")?,
            since: row.try_get("since")?,
            read_only: row.try_get("read_only")?,
            database: row.try_get("database")?,
            has_outbox: row.try_get("has_outbox")?,
            definition: row.try_get("definition")?,
        })
    }

    /// Whether inserts ring for anybody.
    pub(crate) fn rings(&self) -> bool {
        self.definition.is_some()
    }

    /// Why producers cannot be heard, with the cure.
    pub(crate) fn fault(&self, schema: &str) -> Option<String> {
        let [key1, key2] = self.key;
        match &self.definition {
            None if !self.has_outbox => Some(format!(
                "database {} has no {schema}.outbox: the LISTEN connection (postgres.listen_url) must lead to the \
                 database of postgres.url, and `duebox migrate` must have run there",
                self.database
            )),
            None => Some(format!(
                "no trigger on {schema}.outbox rings: run `duebox migrate --doorbell`, or set wake = \"poll\" if that is meant"
            )),
            // A trigger without K rings for every insert: slow for producers, and right.
            Some(definition) if definition.contains("_shared(") => {
                let ours = format!("_shared({key1}, {key2})");
                (!definition.contains(&ours)).then(|| {
                    format!(
                        "the trigger on {schema}.outbox carries the lock of another schema name (was it renamed, or \
                         restored from a dump?): run `duebox migrate`"
                    )
                })
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let (since, database) = (SystemTime::UNIX_EPOCH, "shop".to_owned());
        Facts { key: [12, 34], pid: 1, since, read_only: false, database, has_outbox: true, definition: None }
    }

    fn fault(definition: Option<&str>) -> Option<String> {
        let definition = definition.map(str::to_owned);
        Facts { definition, ..facts() }.fault("duebox")
    }

    #[test]
    fn a_doorbell_works_with_our_lock_or_with_none() {
        assert_eq!(fault(Some("CREATE TRIGGER .. WHEN (pg_try_advisory_lock_shared(12, 34)) ..")), None);
        assert_eq!(fault(Some("CREATE TRIGGER .. EXECUTE FUNCTION ring_on_insert()")), None);
        assert!(
            fault(Some("WHEN (pg_try_advisory_lock_shared(12, 345))")).is_some_and(|text| text.contains("migrate"))
        );
        assert!(fault(None).is_some_and(|text| text.contains("wake = \"poll\"")));
        let elsewhere = Facts { has_outbox: false, ..facts() }.fault("duebox").unwrap();
        assert!(elsewhere.starts_with("database shop has no duebox.outbox"), "{elsewhere}");
    }
}
