//! What the closer writes to the outbox: messages that it holds, and messages that it cannot apply.
//!
//! Each is acked only when its row is committed. The row's `message_id` is made of what it is about, so a message that is
//! delivered again meets its own row and makes no second one.

use super::plan::Home;
use crate::outbox::connect::Db;
use crate::outbox::decode::micros;
use crate::outbox::error::Error;
use crate::rule::port::Delivery;
use serde_json::{Map, Value};
use std::time::SystemTime;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

const HOLD: &str = include_str!("../../../sql/closer_hold.sql");
const PARK: &str = include_str!("../../../sql/closer_park.sql");

/// Make the message ids of the three kinds of rows. Any fixed values do.
const UNTIL_DUE: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0002);
const HALF_A_MINUTE: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0003);
const PARKED: Uuid = Uuid::from_u128(0x6475_6562_6f78_4c8e_9d2a_7275_6c65_0004);

/// Longest key that the outbox takes.
const MAX_KEY: usize = 1_024;
/// Longest reason that is kept.
const MAX_STORED: usize = 2_000;

/// A message as a row.
pub(super) struct Row<'a> {
    tier: &'a str,
    key: Option<String>,
    kind: Option<String>,
    routing_key: Option<String>,
    body: &'a [u8],
    content_type: String,
    headers: String,
    /// What tells this delivery from others, and not from itself when it is delivered again.
    identity: Vec<u8>,
}

impl<'a> Row<'a> {
    /// A delivery as a row of its home; `key` is the order's id, if it is known.
    pub(super) fn new<R>(delivery: &'a Delivery<R>, home: &'a Home, key: Option<&str>) -> Self {
        let text = |text: &str| text.replace('\0', "");
        let key = key.or(delivery.key.as_deref()).map(text).filter(|key| key.len() <= MAX_KEY);
        // Key, tier and body as well: not everybody has message ids, or unique ones.
        let id = delivery.message_id.as_deref().unwrap_or_default();
        let named = [id, delivery.key.as_deref().unwrap_or_default(), delivery.tier.as_deref().unwrap_or_default()];
        let identity = [delivery.queue.as_bytes(), b"\0", named.join("\0").as_bytes(), b"\0", &delivery.body].concat();
        Self {
            tier: &home.tier,
            key,
            kind: delivery.kind.as_deref().map(text),
            routing_key: home.row_key.then(|| text(&delivery.routing_key)),
            body: &delivery.body,
            content_type: text(delivery.content_type.as_deref().unwrap_or("application/octet-stream")),
            headers: Value::Object(clean(&delivery.headers)).to_string(),
            identity,
        }
    }

    /// Holds the message in the outbox: until order `id` of `rule` is due, or for half a minute. For each of these it has one
    /// row, however often that happens.
    pub(super) async fn hold(&self, db: &Db, (rule, id): (&str, &str), until: Option<SystemTime>) -> Result<(), Error> {
        // NUL is in no name and no id.
        let message_id = match until {
            Some(due_at) => Uuid::new_v5(&UNTIL_DUE, format!("{rule}\0{id}\0{}", micros(due_at)).as_bytes()),
            None => Uuid::new_v5(&HALF_A_MINUTE, format!("{}\0{rule}\0{id}", self.tier).as_bytes()),
        };
        self.write(db, "hold a message", (HOLD, message_id), (&until, Type::TIMESTAMPTZ)).await.map(drop)
    }

    /// Parks the message.
    pub(super) async fn park(&self, db: &Db, reason: &str) -> Result<Uuid, Error> {
        let message_id = Uuid::new_v5(&PARKED, &self.identity);
        let reason: String = reason.chars().filter(|c| *c != '\0').take(MAX_STORED).collect();
        self.write(db, "park a message", (PARK, message_id), (&reason, Type::TEXT)).await
    }

    /// Writes the row, or leaves the one that is there.
    async fn write(
        &self,
        db: &Db,
        what: &'static str,
        (statement, message_id): (&str, Uuid),
        last: (&(dyn ToSql + Sync), Type),
    ) -> Result<Uuid, Error> {
        let run = db.once(what, async |client| {
            let parameters = [
                (&message_id as &(dyn ToSql + Sync), Type::UUID),
                (&self.tier, Type::TEXT),
                (&self.key, Type::TEXT),
                (&self.kind, Type::TEXT),
                (&self.routing_key, Type::TEXT),
                (&self.body, Type::BYTEA),
                (&self.content_type, Type::TEXT),
                (&self.headers, Type::TEXT),
                last,
            ];
            client.execute_typed(statement, &parameters).await
        });
        run.await.map(|_rows| message_id)
    }
}

/// Headers that jsonb can hold: it has no NUL.
fn clean(headers: &Map<String, Value>) -> Map<String, Value> {
    headers.iter().map(|(name, value)| (name.replace('\0', ""), clean_value(value))).collect()
}

fn clean_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "")),
        Value::Array(items) => items.iter().map(clean_value).collect(),
        Value::Object(fields) => Value::Object(clean(fields)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn delivery(message_id: Option<&str>, body: &str) -> Delivery<()> {
        Delivery {
            queue: "due".into(),
            routing_key: "k".into(),
            message_id: message_id.map(Into::into),
            kind: None,
            content_type: None,
            tier: None,
            key: Some("7".into()),
            headers: json!({"a\0": ["b\0", {"c": "\0"}], "n": 1}).as_object().unwrap().clone(),
            body: body.into(),
            receipt: (),
        }
    }

    #[test]
    fn a_row_has_what_the_message_had_and_nothing_that_postgres_cannot_hold() {
        let home = |row_key| Home { tier: "t".into(), row_key };
        let (home, keyed, delivery) = (home(false), home(true), delivery(None, "{}"));
        let row = Row::new(&delivery, &home, None);
        assert_eq!(row.headers, json!({"a": ["b", {"c": ""}], "n": 1}).to_string());
        assert_eq!((row.key.as_deref(), row.routing_key), (Some("7"), None));
        let row = Row::new(&delivery, &keyed, Some("8\0"));
        assert_eq!((row.key.as_deref(), row.routing_key.as_deref()), (Some("8"), Some("k")));
        assert_eq!(Row::new(&delivery, &home, Some(&"8".repeat(1_025))).key, None);
    }

    #[test]
    fn a_message_has_one_identity_and_no_other_message_has_it() {
        let home = Home { tier: "t".into(), row_key: false };
        let identity = |id, body| Row::new(&delivery(id, body), &home, None).identity;
        assert_eq!(identity(Some("a"), "1"), identity(Some("a"), "1"));
        assert_ne!(identity(Some("a"), "1"), identity(Some("a"), "2"));
        assert_ne!(identity(Some("a"), "1"), identity(Some("b"), "1"));
        assert_ne!(identity(None, "1"), identity(Some("1"), ""));
    }
}
