//! One outbox row, decoded, and the checks it must pass before the broker's client sees it.
//!
//! A bad value is one row's trouble: it is found here, before anything else of the batch is in flight, because a
//! message that the broker refuses closes the whole channel and names nobody.

use serde_json::{Map, Value};
use uuid::Uuid;

/// Longest AMQP short string in bytes: names, routing keys, `type`, `content_type`, header names.
pub const SHORT_STRING: usize = 255;

/// Prefix of the headers that we write; a row's own are stripped, so a consumer can trust them.
pub const OUR_HEADERS: &str = "x-duebox-";

/// Row headers that are never passed on. `CC` and `BCC` add routes of their own: a `CC` of the target bypassed the
/// delay (measured). The dead-letter headers are the broker's to write, and `x-delay` is the plugin's.
const STRIPPED: [&str; 4] = ["cc", "bcc", "x-death", "x-delay"];

/// Prefixes of row headers that are never passed on.
const STRIPPED_PREFIXES: [&str; 3] = [OUR_HEADERS, "x-first-death-", "x-last-death-"];

/// One outbox row, decoded. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone)]
pub struct Message {
    /// The row's primary key.
    pub id: i64,
    /// AMQP `message_id`; the same over all attempts, consumers dedupe on it.
    pub message_id: Uuid,
    /// The tier that the row names.
    pub tier: String,
    /// The business id (order id).
    pub key: Option<String>,
    /// AMQP `type`.
    pub kind: Option<String>,
    /// The row's own routing key, for a target that is an exchange without a key.
    pub routing_key: Option<String>,
    /// What is sent: `payload` as Postgres prints it, or `body` as it is.
    pub body: Vec<u8>,
    /// AMQP `content_type`.
    pub content_type: String,
    /// The row's headers.
    pub headers: Map<String, Value>,
    /// When the row was inserted.
    pub created_at: i64,
    /// From when on it could be claimed.
    pub available_at: i64,
    /// The row's own due time.
    pub due_at: Option<i64>,
    /// Attempts that counted against the row so far.
    pub attempts: i32,
}

/// A claimed row: a message, or the reason why it cannot be one.
#[derive(Debug, Clone)]
pub struct Row {
    /// The row's primary key.
    pub id: i64,
    /// Its message id, for the log.
    pub message_id: Uuid,
    /// Its business id, for the log.
    pub key: Option<String>,
    /// The message, or why it cannot be decoded.
    pub message: Result<Message, String>,
}

/// The bounds that a message must keep, from the configuration and from what the broker negotiated.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Largest body in bytes.
    pub max_body: usize,
    /// Largest frame in bytes; all properties and headers of a message travel in one.
    pub frame_max: usize,
}

impl Message {
    /// Whether a row header is passed on to the consumer.
    #[must_use]
    pub fn passes(header: &str) -> bool {
        let name = header.to_ascii_lowercase();
        !STRIPPED.contains(&name.as_str()) && !STRIPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Checks everything that would make the broker or its client fail the whole channel.
    ///
    /// # Errors
    /// The reason in words, for `last_error`.
    pub fn check(&self, bounds: &Bounds) -> Result<(), String> {
        if self.body.len() > bounds.max_body {
            return Err(format!(
                "the body has {} bytes, more than relay.max_message_bytes = {}",
                self.body.len(),
                bounds.max_body
            ));
        }
        short("routing_key", self.routing_key.as_deref())?;
        short("type", self.kind.as_deref())?;
        short("content_type", Some(&self.content_type))?;
        if self.created_at < 0 {
            return Err("created_at is before 1970, which an AMQP timestamp cannot say".to_owned());
        }
        let mut size = PROPERTIES_ROOM;
        for (name, value) in self.headers.iter().filter(|(name, _)| Self::passes(name)) {
            size += header_size(name, value)?;
        }
        let room = bounds.frame_max;
        if size + self.key.as_ref().map_or(0, String::len) > room {
            return Err(format!("the headers take {size} bytes, more than the broker's frame of {room} bytes holds"));
        }
        Ok(())
    }
}

/// Room for everything in the content header but the row's headers: five short strings of up to 256 bytes, our own
/// headers with a tier name, fixed-size properties, frame overhead.
const PROPERTIES_ROOM: usize = 4096;

/// Deepest nesting of headers; a table within a table within a table is more than any client reads.
const HEADER_DEPTH: usize = 16;

fn short(what: &str, value: Option<&str>) -> Result<(), String> {
    match value.map_or(0, str::len) {
        length if length > SHORT_STRING => Err(format!("{what} has {length} bytes, AMQP allows {SHORT_STRING}")),
        _ => Ok(()),
    }
}

/// The encoded size of one header.
fn header_size(name: &str, value: &Value) -> Result<usize, String> {
    let shown: String = name.chars().take(32).collect();
    short(&format!("the name of header '{shown}...'"), Some(name))?;
    Ok(1 + name.len() + value_size(value, 0)?)
}

/// The encoded size of a value: one byte of type, then its bytes.
fn value_size(value: &Value, depth: usize) -> Result<usize, String> {
    if depth > HEADER_DEPTH {
        return Err(format!("headers are nested deeper than {HEADER_DEPTH} levels"));
    }
    let inner = match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 8,
        Value::String(text) => 4 + text.len(),
        Value::Array(items) => {
            items.iter().try_fold(4, |sum, item| Ok::<_, String>(sum + value_size(item, depth + 1)?))?
        }
        Value::Object(fields) => fields.iter().try_fold(4, |sum, (name, item)| {
            short("the name of a nested header", Some(name))?;
            Ok::<_, String>(sum + 1 + name.len() + value_size(item, depth + 1)?)
        })?,
    };
    Ok(1 + inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { max_body: 100, frame_max: 131_072 };

    fn message() -> Message {
        Message {
            id: 1,
            message_id: Uuid::nil(),
            tier: "now".into(),
            key: None,
            kind: None,
            routing_key: None,
            body: b"{}".to_vec(),
            content_type: "application/json".into(),
            headers: Map::new(),
            created_at: 0,
            available_at: 0,
            due_at: None,
            attempts: 0,
        }
    }

    fn refused(change: impl FnOnce(&mut Message)) -> String {
        let mut message = message();
        change(&mut message);
        message.check(&BOUNDS).unwrap_err()
    }

    #[test]
    fn each_bound_is_kept_to_the_byte() {
        let mut fits = message();
        fits.body = vec![b'x'; 100];
        fits.routing_key = Some("k".repeat(255));
        fits.kind = Some("é".repeat(127));
        assert_eq!(fits.check(&BOUNDS), Ok(()));
        assert!(refused(|m| m.body = vec![b'x'; 101]).contains("101 bytes"));
        assert!(refused(|m| m.routing_key = Some("k".repeat(256))).contains("routing_key has 256 bytes"));
        assert!(refused(|m| m.kind = Some("é".repeat(128))).contains("type has 256 bytes"));
        assert!(refused(|m| m.content_type = "c".repeat(256)).contains("content_type"));
        assert!(refused(|m| m.created_at = -1).contains("1970"));
    }

    #[test]
    fn headers_must_fit_one_frame_and_have_short_names() {
        let long = |m: &mut Message| drop(m.headers.insert("h".into(), "v".repeat(200_000).into()));
        assert!(refused(long).contains("headers take"));
        let name = |m: &mut Message| drop(m.headers.insert("n".repeat(256), Value::Null));
        assert!(refused(name).contains("256 bytes"));
        let nested = |m: &mut Message| drop(m.headers.insert("n".into(), serde_json::json!({"k".repeat(256): 1})));
        assert!(refused(nested).contains("nested header"));
        let deep = |m: &mut Message| {
            let value = (0..20).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
            m.headers.insert("d".into(), value);
        };
        assert!(refused(deep).contains("deeper"));
    }

    #[test]
    fn reserved_headers_are_stripped_whatever_their_case() {
        let reserved = ["CC", "BCC", "cc", "x-death", "X-Death", "x-delay", "x-duebox-row", "X-DUEBOX-key"];
        for name in reserved.into_iter().chain(["x-first-death-queue", "x-last-death-reason"]) {
            assert!(!Message::passes(name), "{name}");
        }
        for name in ["traceparent", "account", "x-deathly", "cc2", "x-delays"] {
            assert!(Message::passes(name), "{name}");
        }
    }
}
