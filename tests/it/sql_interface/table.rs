//! What the table refuses, and that it says so by the name of the rule.

use super::rig::{Database, allowed, refused, told};

const CHECKS: [(&str, &str, &str); 21] = [
    ("outbox_payload_or_body", "payload, body", "null, null"),
    ("outbox_payload_or_body", "payload, body", "'{}', ''"),
    ("outbox_headers_are_an_object", "headers", "'[]'"),
    ("outbox_headers_are_an_object", "headers", "'1'"),
    ("outbox_headers_are_an_object", "headers", "'null'"),
    ("outbox_due_at_is_finite", "due_at", "'infinity'"),
    ("outbox_due_at_is_finite", "due_at", "'-infinity'"),
    ("outbox_available_at_is_finite", "available_at", "'infinity'"),
    ("outbox_available_at_is_finite", "available_at", "'-infinity'"),
    ("outbox_created_at_is_finite", "created_at", "'infinity'"),
    ("outbox_created_at_is_finite", "created_at", "'-infinity'"),
    ("outbox_sent_parked_or_cancelled", "sent_at, parked_at", "now(), now()"),
    ("outbox_sent_parked_or_cancelled", "sent_at, cancelled_at", "now(), now()"),
    ("outbox_sent_parked_or_cancelled", "parked_at, cancelled_at", "now(), now()"),
    ("outbox_attempts_not_negative", "attempts", "-1"),
    ("outbox_tier_1_to_255_bytes", "tier", "''"),
    ("outbox_tier_1_to_255_bytes", "tier", "repeat('t', 256)"),
    ("outbox_tier_1_to_255_bytes", "tier", "repeat('ü', 128)"),
    ("outbox_key_up_to_1024_bytes", "key", "repeat('k', 1025)"),
    ("outbox_key_up_to_1024_bytes", "key", "repeat('ü', 513)"),
    ("outbox_message_id_key", "message_id", "'00000000-0000-0000-0000-000000000001'"),
];

/// A row with the columns given, and whatever else makes it a good one.
fn insert(columns: &str, values: &str) -> String {
    let named = |column: &str| columns.split(", ").any(|c| c == column);
    let (mut more, mut and) = (String::new(), String::new());
    for (column, value) in [("tier", "'now'"), ("payload", "'{}'")] {
        let body_instead = column == "payload" && named("body");
        if !named(column) && !body_instead {
            more.push_str(&format!(", {column}"));
            and.push_str(&format!(", {value}"));
        }
    }
    format!("insert into outbox ({columns}{more}) values ({values}{and})")
}

#[tokio::test]
async fn each_check_refuses_by_its_own_name() {
    let database = Database::migrated().await;
    let owner = database.owner().await;
    allowed(&owner, &insert("message_id", "'00000000-0000-0000-0000-000000000001'")).await;
    for (rule, columns, values) in CHECKS {
        let error = refused(&owner, &insert(columns, values)).await;
        let constraint = error.as_db_error().and_then(|db| db.constraint());
        assert_eq!(constraint, Some(rule), "{columns} = {values}: {}", told(&error));
    }
}

#[tokio::test]
async fn no_constraint_of_the_table_is_untested() {
    let database = Database::migrated().await;
    let owner = database.owner().await;
    let sql = "select conname::text from pg_constraint where conrelid = 'outbox'::regclass and contype in ('c', 'u')";
    let rows = owner.query(sql, &[]).await.unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let name: &str = row.get(0);
        assert!(CHECKS.iter().any(|(rule, ..)| *rule == name), "{name} has no case above");
    }
}

#[tokio::test]
async fn what_lies_just_inside_the_rules_is_taken() {
    let database = Database::migrated().await;
    let owner = database.owner().await;
    for (columns, values) in [
        ("payload", "'null'"),
        ("body", "''"),
        ("tier", "repeat('t', 255)"),
        // Incompressible, so that it meets the index at its full length.
        ("key", "(select string_agg(md5(n::text), '') from generate_series(1, 32) n)"),
        ("due_at", "null"),
        ("sent_at", "now()"),
        ("created_at, due_at", "'4713-01-01 BC', '294276-01-01'"),
    ] {
        allowed(&owner, &insert(columns, values)).await;
    }
}

#[tokio::test]
async fn an_order_never_fails_for_what_the_relay_can_park() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    for column in ["routing_key", "type", "content_type"] {
        let sql =
            format!("insert into duebox.outbox (tier, payload, {column}) values ('now', '{{}}', repeat('x', 3000))");
        allowed(&producer, &sql).await;
    }
    let headers = "insert into duebox.outbox (tier, payload, headers)
        values ('now', '{}', jsonb_build_object('x', repeat('x', 200000), 'CC', '[]'::jsonb, 'x-duebox-id', 1))";
    allowed(&producer, headers).await;
}
