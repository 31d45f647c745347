//! requeue, and the bell that it and every insert ring.

use super::rig::{Database, allowed, one, refused, told};
use duebox::outbox::migrate::{Trigger, channel};
use std::time::Duration;
use tokio::{sync::mpsc, time::timeout};
use tokio_postgres::{AsyncMessage, Client, NoTls};

const PARKED: &str = "insert into outbox (tier, key, payload, parked_at, attempts, last_error, available_at)
    values ('now', 'k', '{}', now(), 20, 'NO_ROUTE', now() - interval '1 hour')";

/// Rows that a relay would claim at once, with no attempt spent.
async fn pending(client: &Client) -> i64 {
    let sql = "select count(*) from outbox where parked_at is null and attempts = 0
        and available_at between now() - interval '1 minute' and now()";
    one(client, sql).await
}

#[tokio::test]
async fn requeue_by_id_puts_one_parked_row_back_with_all_its_attempts() {
    let database = Database::migrated().await;
    let (owner, relay) = (database.owner().await, database.relay().await);
    allowed(&owner, PARKED).await;
    allowed(&owner, PARKED).await;
    let requeue = "select requeue(min(message_id::text)::uuid) from outbox";
    assert!(one::<bool>(&relay, requeue).await);
    assert!(!one::<bool>(&relay, requeue).await, "it is parked no more");
    assert_eq!(pending(&relay).await, 1);
    assert_eq!(one::<i64>(&relay, "select count(*) from outbox where last_error = 'NO_ROUTE'").await, 2);
}

#[tokio::test]
async fn requeue_by_key_or_by_tier_counts_what_it_put_back() {
    let database = Database::migrated().await;
    let (owner, relay) = (database.owner().await, database.relay().await);
    for row in [PARKED, PARKED, &PARKED.replace("'k'", "'other'"), &PARKED.replace("'k'", "null")] {
        allowed(&owner, row).await;
        allowed(&owner, &row.replace("'now'", "'later'")).await;
    }
    assert_eq!(one::<i64>(&relay, "select requeue('now', 'k')").await, 2);
    assert_eq!(one::<i64>(&relay, "select requeue('now', 'k')").await, 0);
    assert_eq!(one::<i64>(&relay, "select requeue('now')").await, 2);
    assert_eq!(pending(&relay).await, 4);
}

#[tokio::test]
async fn requeue_leaves_sent_and_cancelled_rows_alone() {
    let database = Database::migrated().await;
    let (owner, relay) = (database.owner().await, database.relay().await);
    for column in ["sent_at", "cancelled_at"] {
        allowed(&owner, &PARKED.replace("parked_at", column)).await;
    }
    assert_eq!(one::<i64>(&relay, "select requeue('now')").await, 0);
    assert_eq!(one::<i64>(&relay, "select count(*) from outbox where requeue(message_id)").await, 0);
}

#[tokio::test]
async fn an_untyped_message_id_is_not_silently_taken_for_a_tier() {
    let database = Database::migrated().await;
    let (owner, relay) = (database.owner().await, database.relay().await);
    allowed(&owner, PARKED).await;
    let id: String = one(&owner, "select message_id::text from outbox").await;
    let error = refused(&relay, &format!("select requeue('{id}')")).await;
    assert!(told(&error).contains(&format!("Write requeue('{id}'::uuid)")), "{}", told(&error));
}

/// A session that listens, with each ring it hears: channel and payload.
async fn listener(database: &Database) -> (Client, mpsc::UnboundedReceiver<(String, String)>) {
    let (client, mut connection) = database.config(&database.relay).connect(NoTls).await.unwrap();
    let (rings, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(n) = message {
                rings.send((n.channel().to_owned(), n.payload().to_owned())).ok();
            }
        }
    });
    client.batch_execute(&format!("listen \"{}\"", channel(database.schema))).await.unwrap();
    (client, heard)
}

/// What was heard since the last call. Notifications come in the order of the commits, so whatever
/// rang before this session's own is in front of it.
async fn rings(client: &Client, heard: &mut mpsc::UnboundedReceiver<(String, String)>) -> Vec<(String, String)> {
    client.batch_execute("listen fence; notify fence").await.unwrap();
    let mut all = Vec::new();
    loop {
        let ring = timeout(Duration::from_secs(10), heard.recv()).await.expect("the fence was lost").unwrap();
        if ring.0 == "fence" {
            return all;
        }
        all.push(ring);
    }
}

#[tokio::test]
async fn every_inserting_transaction_rings_once_and_only_at_its_commit() {
    for schema in ["duebox", "Out Box"] {
        let database = Database::empty(schema).await;
        let mut owner = database.owner().await;
        duebox::outbox::migrate::apply(&mut owner, schema, &database.grants(), Trigger::Keep).await.unwrap();
        let producer = database.producer().await;
        let (client, mut heard) = listener(&database).await;
        let ring = (format!("{schema}.outbox"), String::new());
        let call = format!("select \"{schema}\".enqueue('now', 'k', 't', '{{}}')");
        allowed(&producer, &call).await;
        assert_eq!(rings(&client, &mut heard).await, std::slice::from_ref(&ring));
        allowed(&producer, &format!("begin; {call}; {call}")).await;
        assert_eq!(rings(&client, &mut heard).await, []);
        allowed(&producer, "commit").await;
        assert_eq!(rings(&client, &mut heard).await, std::slice::from_ref(&ring));
        allowed(&producer, &format!("insert into \"{schema}\".outbox (tier, payload) values ('now', '{{}}')")).await;
        assert_eq!(rings(&client, &mut heard).await, [ring]);
    }
}

#[tokio::test]
async fn requeue_rings_when_it_put_something_back() {
    let database = Database::migrated().await;
    let (owner, relay) = (database.owner().await, database.relay().await);
    let (client, mut heard) = listener(&database).await;
    for requeue in ["select requeue(message_id) from outbox", "select requeue('now', 'k')", "select requeue('now')"] {
        allowed(&owner, "delete from outbox").await;
        allowed(&owner, PARKED).await;
        assert_eq!(rings(&client, &mut heard).await.len(), 1, "the insert's own");
        allowed(&relay, requeue).await;
        assert_eq!(rings(&client, &mut heard).await, [("duebox.outbox".to_owned(), String::new())], "{requeue}");
        allowed(&relay, requeue).await;
        assert_eq!(rings(&client, &mut heard).await, [], "{requeue}: nothing was parked");
    }
}
