//! AMQP properties and headers of a message.

use crate::message::{Message, OUR_HEADERS};
use crate::relay::Outgoing;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Header with the row's id, by which a returned message is recognised.
pub(super) const ROW: &str = "x-duebox-row";
/// Header with the number of the batch, so that a return of an earlier one is not taken for this one's.
pub(super) const BATCH: &str = "x-duebox-batch";

/// Header with the tier.
pub(super) const TIER: &str = "x-duebox-tier";
/// Header with the business id.
pub(super) const KEY: &str = "x-duebox-key";

/// Header that tells the delayed-message plugin what to wait, in milliseconds.
const PLUGIN_DELAY: &str = "x-delay";

/// AMQP delivery mode: on disk. Kept by quorum delay queues for what they dead-letter, too.
const PERSISTENT: u8 = 2;

/// The properties of one message.
///
/// # Errors
/// Something is longer than AMQP allows; checked before, so only a bug gets here.
pub(super) fn properties(out: &Outgoing<'_>, batch: u64) -> Result<BasicProperties, String> {
    let message = out.message;
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short(&message.message_id.to_string())?)
        .with_content_type(short(&message.content_type)?)
        .with_app_id("duebox".into())
        .with_timestamp(u64::try_from(message.created_at / 1_000_000).unwrap_or(0))
        .with_headers(headers(out, batch)?);
    if let Some(kind) = &message.kind {
        properties = properties.with_type(short(kind)?);
    }
    Ok(properties)
}

/// A short string, or why it is none.
pub(super) fn short(text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text).map_err(|error| format!("'{text}': {error}"))
}

/// The row's headers without the reserved ones, then our own, written last.
fn headers(out: &Outgoing<'_>, batch: u64) -> Result<FieldTable, String> {
    let message = out.message;
    let mut table = FieldTable::default();
    for (name, value) in message.headers.iter().filter(|(name, _)| Message::passes(name)) {
        table.insert(short(name)?, amqp(value)?);
    }
    let mut ours = |name: &str, value: AMQPValue| -> Result<(), String> {
        debug_assert!(name.starts_with(OUR_HEADERS), "{name}");
        table.insert(short(name)?, value);
        Ok(())
    };
    ours(ROW, AMQPValue::LongLongInt(message.id))?;
    ours(BATCH, AMQPValue::LongLongInt(i64::try_from(batch).unwrap_or(i64::MAX)))?;
    ours(TIER, AMQPValue::LongString(message.tier.as_str().into()))?;
    if let Some(key) = &message.key {
        ours(KEY, AMQPValue::LongString(key.as_str().into()))?;
    }
    // Milliseconds: what every client language has a type for. AMQP's own timestamps are whole seconds.
    ours("x-duebox-due", AMQPValue::LongLongInt(out.due / 1_000))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    ours("x-duebox-published", AMQPValue::LongLongInt(i64::try_from(now).unwrap_or(i64::MAX)))?;
    ours("x-duebox-attempt", AMQPValue::LongInt(message.attempts.saturating_add(1)))?;
    if let Some(wait) = out.wait.filter(|wait| !wait.is_zero()) {
        table.insert(PLUGIN_DELAY.into(), AMQPValue::LongLongInt(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)));
    }
    Ok(table)
}

/// A JSON value as the AMQP value nearest to it.
fn amqp(value: &Value) -> Result<AMQPValue, String> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(value) => AMQPValue::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AMQPValue::LongLongInt(whole),
            None => AMQPValue::Double(number.as_f64().unwrap_or(f64::MAX)),
        },
        Value::String(text) => AMQPValue::LongString(text.as_str().into()),
        Value::Array(items) => {
            AMQPValue::FieldArray(FieldArray::from(items.iter().map(amqp).collect::<Result<Vec<_>, _>>()?))
        }
        Value::Object(fields) => {
            let mut table = FieldTable::default();
            for (name, item) in fields {
                table.insert(short(name)?, amqp(item)?);
            }
            AMQPValue::FieldTable(table)
        }
    })
}

/// An AMQP value as the JSON value nearest to it, for a row of the outbox.
pub(super) fn json(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(value) => Value::from(*value),
        AMQPValue::ShortShortInt(n) => Value::from(*n),
        AMQPValue::ShortShortUInt(n) => Value::from(*n),
        AMQPValue::ShortInt(n) => Value::from(*n),
        AMQPValue::ShortUInt(n) => Value::from(*n),
        AMQPValue::LongInt(n) => Value::from(*n),
        AMQPValue::LongUInt(n) => Value::from(*n),
        AMQPValue::LongLongInt(n) => Value::from(*n),
        AMQPValue::Float(n) => Value::from(*n),
        AMQPValue::Double(n) => Value::from(*n),
        AMQPValue::Timestamp(seconds) => Value::from(*seconds),
        AMQPValue::ShortString(text) => Value::from(text.as_str()),
        AMQPValue::LongString(text) => Value::from(String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => Value::from(String::from_utf8_lossy(bytes.as_slice())),
        AMQPValue::FieldArray(items) => items.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => {
            Value::Object(table.inner().iter().map(|(name, value)| (name.to_string(), json(value))).collect())
        }
        AMQPValue::DecimalValue(_) | AMQPValue::Void => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Hop;

    fn message() -> Message {
        let headers = serde_json::json!({
            "traceparent": "00-ab", "n": 1, "f": 1.5, "nested": {"a": [true, null]},
            "CC": ["due"], "x-duebox-row": 999, "x-death": [], "X-Delay": 5
        });
        Message {
            id: 7,
            message_id: uuid::Uuid::nil(),
            tier: "t".into(),
            key: Some("order-1".into()),
            kind: Some("order.created".into()),
            routing_key: None,
            body: vec![],
            content_type: "application/json".into(),
            headers: headers.as_object().unwrap().clone(),
            created_at: 1_700_000_000_900_000,
            available_at: 1_700_000_000_900_000,
            due_at: None,
            attempts: 2,
        }
    }

    #[test]
    fn what_went_out_as_a_header_comes_back_as_it_was() {
        let sent = serde_json::json!({"text": "ä", "n": -1, "f": 1.5, "yes": true, "none": null, "deep": [{"a": [2]}]});
        assert_eq!(json(&amqp(&sent).unwrap()), sent);
    }

    #[test]
    fn ours_are_written_last_and_reserved_ones_never_pass() {
        let message = message();
        let out = Outgoing {
            message: &message,
            hop: Hop::queue("q"),
            row_key: false,
            mandatory: true,
            wait: None,
            due: 5_000_000,
        };
        let properties = properties(&out, 42).unwrap();
        let table = properties.headers().as_ref().unwrap().inner();
        let get = |name: &str| table.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value.clone());
        assert_eq!(get(ROW), Some(AMQPValue::LongLongInt(7)));
        assert_eq!(get(BATCH), Some(AMQPValue::LongLongInt(42)));
        assert_eq!(get("x-duebox-due"), Some(AMQPValue::LongLongInt(5_000)));
        assert_eq!(get("x-duebox-attempt"), Some(AMQPValue::LongInt(3)));
        assert_eq!(get("traceparent"), Some(AMQPValue::LongString("00-ab".into())));
        assert_eq!(get("f"), Some(AMQPValue::Double(1.5)));
        for reserved in ["CC", "x-death", "X-Delay"] {
            assert_eq!(get(reserved), None, "{reserved}");
        }
        assert_eq!(*properties.delivery_mode(), Some(PERSISTENT));
        assert_eq!(*properties.timestamp(), Some(1_700_000_000));
        assert_eq!(*properties.expiration(), None, "the delay is the queue's, never the message's");
    }
}
