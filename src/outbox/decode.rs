//! From columns to a message. A bad value is one row's trouble, and becomes its reason.

use super::error::describe;
use crate::message::{Message, Row};
use serde_json::{Map, Value};
use std::error::Error as StdError;
use std::time::SystemTime;
use tokio_postgres::types::{FromSql, Type};

/// A claimed row without its values.
#[derive(Debug)]
pub(super) struct Head {
    row: tokio_postgres::Row,
    /// The primary key.
    pub(super) id: i64,
    /// The claim's `now()`.
    pub(super) now: SystemTime,
    /// Where the next scan may start.
    pub(super) available_at: SystemTime,
    /// Bytes of its values as stored, compressed ones too.
    pub(super) stored: usize,
}

impl Head {
    pub(super) fn new(row: tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        let stored: i32 = row.try_get("stored")?;
        Ok(Self {
            id: row.try_get("id")?,
            now: row.try_get("now")?,
            available_at: row.try_get("available_at")?,
            stored: usize::try_from(stored).unwrap_or(usize::MAX),
            row,
        })
    }

    /// The row, with values of its own or, if it is a large one, with those read for it.
    ///
    /// The number is what it takes in memory, in bytes.
    pub(super) fn into_row(self, tier: &str, large: Option<Values>) -> Result<(Row, usize), tokio_postgres::Error> {
        let values = match large {
            Some(values) => Ok(values),
            None => Values::of(&self.row),
        };
        let size = values.as_ref().map_or(0, Values::size) + self.row.raw_size_bytes();
        let row = Row {
            id: self.id,
            message_id: self.row.try_get("message_id")?,
            // For the log only; a key that cannot be read is said when the message is decoded.
            key: self.row.try_get("key").unwrap_or_default(),
            message: values.map_err(unreadable).and_then(|values| decode(&self.row, tier, values)),
        };
        Ok((row, size))
    }
}

/// What makes a row large.
#[derive(Debug)]
pub(super) struct Values {
    payload: Option<JsonText>,
    body: Option<Vec<u8>>,
    headers: Option<JsonText>,
}

impl Values {
    /// The values in a row that has them.
    pub(super) fn of(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self { payload: row.try_get("payload")?, body: row.try_get("body")?, headers: row.try_get("headers")? })
    }

    /// Bytes in memory; headers are held as text and as the tree it is parsed into.
    fn size(&self) -> usize {
        let text = |json: &Option<JsonText>| json.as_ref().map_or(0, |json| json.0.len());
        text(&self.payload) + self.body.as_ref().map_or(0, Vec::len) + 2 * text(&self.headers)
    }
}

/// The message of a row, or why it cannot be one.
fn decode(row: &tokio_postgres::Row, tier: &str, values: Values) -> Result<Message, String> {
    let body = match (values.payload, values.body) {
        (Some(payload), None) => payload.0,
        (None, Some(body)) => body,
        _ => return Err("exactly one of payload and body must be set".to_owned()),
    };
    let headers = values.headers.map(|headers| headers.0).unwrap_or_default();
    let headers: Map<String, Value> =
        serde_json::from_slice(&headers).map_err(|error| format!("headers cannot be read: {error}"))?;
    let message = || -> Result<Message, tokio_postgres::Error> {
        Ok(Message {
            id: row.try_get("id")?,
            message_id: row.try_get("message_id")?,
            tier: tier.to_owned(),
            key: row.try_get("key")?,
            kind: row.try_get("type")?,
            routing_key: row.try_get("routing_key")?,
            body,
            content_type: row.try_get("content_type")?,
            headers,
            created_at: micros(row.try_get("created_at")?),
            available_at: micros(row.try_get("available_at")?),
            due_at: row.try_get::<_, Option<SystemTime>>("due_at")?.map(micros),
            attempts: row.try_get("attempts")?,
        })
    };
    message().map_err(unreadable)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: tokio_postgres::Error) -> String {
    format!("the row cannot be read: {}", describe(&error))
}

/// A `jsonb` as the text that Postgres prints, byte for byte: its binary form is a version byte and that text.
#[derive(Debug)]
struct JsonText(Vec<u8>);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        match raw {
            [1, text @ ..] => Ok(Self(text.to_vec())),
            _ => Err("unknown jsonb version".into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}

/// Microseconds since the Unix epoch, saturating; Postgres counts in microseconds too.
pub(crate) fn micros(at: SystemTime) -> i64 {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    }
}
