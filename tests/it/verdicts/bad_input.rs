//! What producers should not write is refused by the table, or parked with a reason a person understands; the rows
//! around it go out.

use super::{arrivals, repeated, shop};
use crate::support::consumer::{Consumer, Inspector};
use crate::support::db::{Db, Row};
use crate::support::rig::Rig;
use crate::support::wait::{millis, secs, wait_until};
use std::time::Instant;

const TIERS: &str = "[tier.now]\ntarget = { queue = \"now\" }\n[tier.events]\ntarget = { exchange = \"shop\" }\n\
    [tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n";

/// Columns and values, and the constraint (or SQLSTATE) that refuses them.
const REFUSED: &[(&str, &str, &str)] = &[
    ("payload, body", "'{}', '\\x00'", "outbox_payload_or_body"),
    ("payload, body", "null, null", "outbox_payload_or_body"),
    ("payload, headers", "'{}', '[]'", "outbox_headers_are_an_object"),
    ("payload, headers", "'{}', '\"x\"'", "outbox_headers_are_an_object"),
    ("payload, headers", "'{}', 'null'", "outbox_headers_are_an_object"),
    ("payload, headers", "'{}', null", "23502"),
    ("payload, due_at", "'{}', 'infinity'", "outbox_due_at_is_finite"),
    ("payload, due_at", "'{}', '-infinity'", "outbox_due_at_is_finite"),
    ("payload, available_at", "'{}', 'infinity'", "outbox_available_at_is_finite"),
    ("payload, created_at", "'{}', 'infinity'", "outbox_created_at_is_finite"),
    ("payload, key", "'{}', repeat('k', 1025)", "outbox_key_up_to_1024_bytes"),
    ("payload", "'{\"a\": \"\\u0000\"}'", "22P05"),
    ("payload", "'no json'", "22P02"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_table_refuses_what_no_relay_could_make_sense_of() {
    let rig = Rig::new("refused");
    rig.migrated();
    let db = rig.db().await;
    for (columns, values, expected) in REFUSED {
        let insert = format!("insert into duebox.outbox (tier, {columns}) values ('now', {values})");
        let error = db.execute(&insert, &[]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        let by = error.constraint().filter(|_| error.code().code() == "23514").unwrap_or(error.code().code());
        assert_eq!(by, *expected, "{insert}: {error}");
    }
    assert_eq!(db.count("true").await, 0);
}

/// Tier, columns and values beside the payload, and what the reason must say.
const PARKED: &[(&str, &str, &str, &str)] = &[
    ("events", "routing_key", "repeat('k', 300)", "routing_key has 300 bytes, AMQP allows 255"),
    ("events", "routing_key", "repeat('€', 200)", "routing_key has 600 bytes"),
    ("events", "routing_key", "null", "routing_key is null"),
    ("now", "routing_key", "'elsewhere'", "leave routing_key null"),
    ("t2s", "routing_key", "'elsewhere'", "leave routing_key null"),
    ("now", "type", "repeat('t', 256)", "type has 256 bytes"),
    ("now", "content_type", "repeat('t', 256)", "content_type has 256 bytes"),
    ("now", "headers", "jsonb_build_object('h', repeat('v', 200000))", "headers take 2"),
    ("now", "headers", "jsonb_build_object(repeat('n', 256), 1)", "nnn...' has 256 bytes"),
    ("now", "headers", "jsonb_build_object('a', jsonb_build_object(repeat('n', 256), 1))", "nested header has 256"),
    ("now", "headers", "(repeat('{\"a\":', 20) || '1' || repeat('}', 20))::jsonb", "nested deeper than 16 levels"),
    ("now", "headers", "(repeat('{\"a\":', 500) || '1' || repeat('}', 500))::jsonb", "headers cannot be read"),
    ("now", "headers", "'{\"n\": 1e999}'", "headers cannot be read: number out of range"),
    ("now", "created_at", "'1969-12-31'", "created_at is before 1970"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_can_never_be_published_is_parked_with_its_reason_and_its_neighbours_go_out() {
    let rig = Rig::new("parked");
    let broker = shop(&rig, &["good"]).await;
    let daemon = rig.relay(TIERS);
    let db = rig.db().await;
    // One transaction, so that good and bad rows share their batches.
    db.batch_execute("begin").await.unwrap();
    for (n, (tier, column, value, _)) in PARKED.iter().enumerate() {
        let bad = format!(
            "insert into duebox.outbox (tier, key, payload, {column}) values ('{tier}', 'bad {n}', '{{}}', {value})"
        );
        db.batch_execute(&bad).await.unwrap();
        good_rows(&db).await;
    }
    let large = "insert into duebox.outbox (tier, key, body) \
        values ('now', 'large', convert_to(repeat('x', 20 * 1024 * 1024), 'utf8'))";
    db.batch_execute(large).await.unwrap();
    good_rows(&db).await;
    db.batch_execute("commit").await.unwrap();

    let good = PARKED.len() + 1;
    for queue in ["now", "good", "due"] {
        let came = arrivals(&broker, queue, good, secs(20)).await;
        assert_eq!((came.len(), repeated(&came)), (good, 0), "{queue}");
    }
    wait_until(secs(20), async || db.count("parked_at is not null").await == good as i64).await;
    for (n, (_, column, value, expected)) in PARKED.iter().enumerate() {
        assert_parked(&db, &format!("bad {n}"), expected, &format!("{column} = {value}")).await;
    }
    assert_parked(&db, "large", "20971520 bytes, more than relay.max_message_bytes = 16777216", "large").await;
    assert_eq!(db.count("key = 'good' and sent_at is not null and attempts = 0").await, 3 * good as i64);
    daemon.wait_ready(secs(5));
    assert_eq!(
        daemon.metric("duebox_reconnects_total{side=\"rabbitmq\"}"),
        Some(0.0),
        "no connection was lost over it"
    );
}

async fn good_rows(db: &Db) {
    let insert = "insert into duebox.outbox (tier, key, routing_key, payload) \
        values ('now', 'good', null, '{}'), ('events', 'good', 'good', '{}'), ('t2s', 'good', null, '{}')";
    db.batch_execute(insert).await.unwrap();
}

async fn assert_parked(db: &Db, key: &str, expected: &str, what: &str) {
    let query = "select last_error, parked_at is not null, attempts from duebox.outbox where key = $1";
    let row = db.query_one(query, &[&key]).await.unwrap();
    let (reason, parked, attempts): (Option<String>, bool, i32) = (row.get(0), row.get(1), row.get(2));
    let reason = reason.unwrap_or_default();
    assert!(parked && attempts == 0 && reason.contains(expected), "{what}: {reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_headers_are_stripped_and_no_copy_goes_past_the_delay() {
    let rig = Rig::new("headers");
    shop(&rig, &[]).await;
    let daemon = rig.relay(TIERS);
    let db = rig.db().await;
    let reserved = serde_json::json!({
        "CC": ["due", "now"], "BCC": ["due"], "cc": "due", "x-delay": 1, "x-death": [{"count": 99}],
        "x-first-death-queue": "forged", "x-last-death-reason": "forged",
        "x-duebox-row": -1, "X-Duebox-Key": "forged", "x-duebox-due": 0, "traceparent": "00-ab", "n": [1, {"b": null}]
    });
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let inserted = Instant::now();
    let (id, message_id) = db.insert(&Row { headers: reserved.clone(), ..Row::new("t2s").key("k") }).await;
    let delivery = due.next(secs(10)).await.expect("it arrives");
    assert!(inserted.elapsed() >= millis(1_900), "through the delay queue, not around it");
    assert_eq!(delivery.message_id, message_id.to_string());
    let header = |name: &str| delivery.headers.get(name).cloned();
    assert_eq!(header("x-duebox-row"), Some(id.to_string()));
    assert_eq!(header("x-duebox-key").as_deref(), Some("k"));
    assert_eq!(header("traceparent").as_deref(), Some("00-ab"));
    for name in ["CC", "BCC", "cc", "x-delay", "X-Duebox-Key"] {
        assert_eq!(header(name), None, "{name}");
    }
    let forged = delivery.headers.values().any(|value| value.contains("forged") || value.contains("Int(99)"));
    assert!(!forged, "the dead-letter headers are the broker's own: {:?}", delivery.headers);

    let (_, direct) = db.insert(&Row { headers: reserved, ..Row::new("now") }).await;
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let came = arrivals(&broker, "now", 1, secs(10)).await;
    assert_eq!(came.keys().collect::<Vec<_>>(), [&direct.to_string()], "and only it: no CC of the delayed one");
    assert!(due.next(secs(1)).await.is_none(), "one message each, no copies");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_and_binary_bodies_arrive_byte_for_byte_with_their_content_type() {
    let rig = Rig::new("bodies");
    shop(&rig, &[]).await;
    let daemon = rig.relay(TIERS);
    let db = rig.db().await;
    let mut now = Consumer::new(&rig.amqp_url(), "now").await;
    let cases: [(&str, &[u8], &str); 6] = [
        ("payload", b"\"\"", "'\"\"'"),
        ("payload", b"null", "'null'"),
        ("payload", b"{\"a\": 1.50}", "'{\"a\":1.50}'"),
        ("body", b"", "''"),
        ("body", b"\x00\xff\r\n\x00", "'\\x00ff0d0a00'"),
        ("body", b"\xce", "'\\xce'"),
    ];
    for (column, expected, value) in cases {
        let insert =
            format!("insert into duebox.outbox (tier, {column}, content_type) values ('now', {value}, 'a/b; c=d')");
        db.execute(&insert, &[]).await.unwrap();
        let delivery = now.next(secs(10)).await.expect("it arrives");
        assert_eq!(delivery.body, expected, "{insert}");
        assert_eq!(
            delivery.properties.content_type().as_ref().map(lapin::types::ShortString::as_str),
            Some("a/b; c=d")
        );
    }
    assert_eq!(db.count("parked_at is not null").await, 0);
    drop(daemon);
}
