//! The order's id in a message. Pure.

use crate::rule::port::Delivery;
use serde_json::Value;

/// The id of the order that a message is about: its key, else what the rule's pointer finds in its body; or why neither.
pub(super) fn order_id<R>(delivery: &Delivery<R>, rule: &str, pointer: Option<&str>) -> Result<String, String> {
    if let Some(key) = delivery.key.as_deref().filter(|key| !key.is_empty()) {
        return Ok(key.to_owned());
    }
    let Some(pointer) = pointer else {
        return Err(format!("it has no key, and rule.{rule}.id_pointer does not say where else the order's id is"));
    };
    let body: Value = serde_json::from_slice(&delivery.body).map_err(|error| unread(&error))?;
    match body.pointer(pointer) {
        Some(Value::String(id)) if !id.is_empty() => Ok(id.clone()),
        Some(Value::Number(id)) if !id.is_f64() => Ok(id.to_string()),
        Some(_) => Err(format!("it has no key, and what is at {pointer} in its body is no id")),
        None => Err(format!("it has no key, and there is nothing at {pointer} in its body")),
    }
}

/// Said by the parser of a body that is nested deeper than it goes.
const TOO_DEEP: &str = "recursion limit exceeded";

/// Why the body was not read. Deep is not wrong: Postgres takes such JSON as well, so the cure is another than for no JSON.
fn unread(error: &serde_json::Error) -> String {
    let error = error.to_string();
    let why = if error.starts_with(TOO_DEEP) {
        "is JSON nested deeper than the 127 levels that are read".to_owned()
    } else {
        format!("is no JSON: {error}")
    };
    format!(
        "it has no key, and its body {why}; enqueue such messages with the order's id as their key, and give it to this row \
         (update ... set key = ...) before it is requeued"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: Option<&str>, body: &str, pointer: Option<&str>) -> Result<String, String> {
        let delivery = Delivery {
            queue: String::new(),
            routing_key: String::new(),
            message_id: None,
            kind: None,
            content_type: None,
            tier: None,
            key: key.map(Into::into),
            headers: serde_json::Map::new(),
            body: body.into(),
            receipt: (),
        };
        order_id(&delivery, "unpaid", pointer)
    }

    #[test]
    fn the_key_goes_before_the_body() {
        let body = r#"{"order": {"id": 42, "no": "A-7", "sum": 1.5, "none": null, "empty": ""}}"#;
        assert_eq!(id(Some("7"), body, Some("/order/id")).as_deref(), Ok("7"));
        assert_eq!(id(None, body, Some("/order/id")).as_deref(), Ok("42"));
        assert_eq!(id(Some(""), body, Some("/order/no")).as_deref(), Ok("A-7"));
        for pointer in ["/order/sum", "/order/none", "/order/empty", "/order"] {
            assert!(id(None, body, Some(pointer)).unwrap_err().ends_with("is no id"), "{pointer}");
        }
        assert!(id(None, body, Some("/id")).unwrap_err().contains("nothing at /id"));
        assert!(id(None, "order 42", Some("/id")).unwrap_err().contains("no JSON"));
        let nested = |levels| format!("{{\"id\": 7, \"deep\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(id(None, &nested(126), Some("/id")).as_deref(), Ok("7"));
        let reason = id(None, &nested(127), Some("/id")).unwrap_err();
        assert!(reason.contains("nested deeper than the 127 levels") && reason.contains("set key = "), "{reason}");
        assert!(id(None, body, None).unwrap_err().contains("rule.unpaid.id_pointer"));
    }
}
