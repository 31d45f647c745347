//! Least privilege, tried by connecting as each role.

use super::rig::{Database, allowed, denied, one};

const ROW: &str = "insert into duebox.outbox (tier, key, type, payload) values ('now', 'k', 't', '{}')";

#[tokio::test]
async fn a_producer_can_enqueue_cancel_and_insert() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    allowed(&producer, "select duebox.enqueue('now', 'k', 't', '{}')").await;
    assert!(one::<bool>(&producer, "select duebox.cancel('now', 'k')").await);
    assert!(!one::<bool>(&producer, "select duebox.cancel(gen_random_uuid())").await);
    let sql = format!("{ROW} on conflict (message_id) do nothing returning id, message_id");
    assert_eq!(producer.query(&sql, &[]).await.unwrap().len(), 1);
    let all = "insert into duebox.outbox
        (message_id, tier, key, type, routing_key, body, content_type, headers, created_at, due_at)
        values (gen_random_uuid(), 'now', 'k', 't', 'r', 'x', 'text/plain', '{}', now(), now())";
    allowed(&producer, all).await;
}

#[tokio::test]
async fn a_producer_can_neither_read_nor_change_what_is_in_the_table() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    allowed(&producer, ROW).await;
    for sql in [
        "select payload from duebox.outbox",
        "select key from duebox.outbox",
        "select * from duebox.state",
        "insert into duebox.state (name) values ('pause.relay')",
        "update duebox.outbox set tier = 'x'",
        "update duebox.outbox set sent_at = now()",
        "delete from duebox.outbox",
        "truncate duebox.outbox",
        "select id from duebox.outbox for update",
    ] {
        denied(&producer, sql).await;
    }
}

#[tokio::test]
async fn a_producers_row_always_starts_pending() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    for (column, value) in [
        ("id", "1"),
        ("available_at", "now()"),
        ("attempts", "1"),
        ("last_error", "''"),
        ("sent_at", "now()"),
        ("parked_at", "now()"),
        ("cancelled_at", "now()"),
    ] {
        let sql = format!(
            "insert into duebox.outbox (tier, payload, {column}) overriding system value
             values ('now', '{{}}', {value})"
        );
        denied(&producer, &sql).await;
    }
}

#[tokio::test]
async fn a_producer_can_neither_requeue_nor_ring_nor_create() {
    let database = Database::migrated().await;
    let producer = database.producer().await;
    for sql in [
        "select duebox.requeue(gen_random_uuid())",
        "select duebox.requeue('now', 'k')",
        "select duebox.ring()",
        "create table duebox.x ()",
        "create function duebox.cancel(x int) returns int language sql as 'select 1'",
        "alter table duebox.outbox disable trigger outbox_bell",
        "drop function duebox.cancel(uuid)",
    ] {
        denied(&producer, sql).await;
    }
}

#[tokio::test]
async fn a_role_without_grants_can_do_nothing() {
    let database = Database::migrated().await;
    let admin = database.superuser().await;
    // USAGE on the schema is not enough: EXECUTE is revoked from PUBLIC, so that the grant says all.
    allowed(&admin, &format!("create role {}_nobody login", database.name)).await;
    allowed(&admin, &format!("grant usage on schema duebox to {}_nobody", database.name)).await;
    allowed(&admin, &format!("set role {}_nobody", database.name)).await;
    for sql in [
        "select duebox.enqueue('now', 'k', 't', '{}')",
        "select duebox.cancel(gen_random_uuid())",
        "select duebox.cancel('now', 'k')",
        "select duebox.requeue(gen_random_uuid())",
        "select duebox.requeue('now', 'k')",
        "select duebox.ring()",
        "select duebox.ring_on_insert()",
        ROW,
    ] {
        denied(&admin, sql).await;
    }
}

#[tokio::test]
async fn the_relay_can_claim_settle_retain_write_events_and_keep_state() {
    let database = Database::migrated().await;
    let relay = database.relay().await;
    for sql in [
        ROW,
        "select * from outbox for update skip locked",
        "update outbox set attempts = 1, last_error = 'x', available_at = now(), sent_at = null, cancelled_at = null",
        "update outbox set parked_at = now()",
        "select requeue(message_id), requeue('now', 'k'), requeue('now') from outbox",
        "select cancel(message_id), cancel('now', 'k') from outbox",
        "delete from outbox",
        "insert into state (name) values ('pause.relay')",
        "update state set at = now(), info = '{}'",
        "select * from state for update",
        "delete from state where name = 'pause.relay'",
        "listen \"duebox.outbox\"",
    ] {
        allowed(&relay, sql).await;
    }
}

#[tokio::test]
async fn the_relay_can_neither_alter_a_message_nor_the_schema() {
    let database = Database::migrated().await;
    let relay = database.relay().await;
    allowed(&relay, ROW).await;
    for column in ["message_id", "tier", "key", "type", "routing_key", "payload", "body", "content_type", "headers"] {
        denied(&relay, &format!("update outbox set {column} = null")).await;
    }
    for sql in [
        "update outbox set created_at = now()",
        "update outbox set due_at = now()",
        "truncate outbox",
        "create table x ()",
        "create index on outbox (tier)",
        "alter table outbox add x int",
        "alter table outbox disable trigger outbox_bell",
        "drop table state",
        "drop trigger outbox_bell on outbox",
        "create schema x",
    ] {
        denied(&relay, sql).await;
    }
}
