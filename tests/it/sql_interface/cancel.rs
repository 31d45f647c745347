//! cancel never waits, and true means that no publish starts afterwards.
//!
//! "At once" is shown without a clock: the other session holds its lock until cancel has answered.

use super::rig::{Database, allowed, one};
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::Client;
use uuid::Uuid;

const BY_KEY: &str = "select duebox.cancel('now', 'k')";

async fn enqueue(producer: &Client) -> Uuid {
    one(producer, "select duebox.enqueue('now', 'k', 't', '{}')").await
}

fn by_id(id: Uuid) -> String {
    format!("select duebox.cancel('{id}'::uuid)")
}

/// Fails, instead of hanging, when cancel does wait.
async fn at_once(client: &Client, sql: &str) -> bool {
    timeout(Duration::from_secs(10), one(client, sql)).await.expect("cancel waits for the lock")
}

#[tokio::test]
async fn a_pending_row_is_cancelled_once() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    let id = enqueue(&producer).await;
    assert!(at_once(&producer, &by_id(id)).await);
    assert!(!at_once(&producer, &by_id(id)).await);
    enqueue(&producer).await;
    assert!(at_once(&producer, BY_KEY).await);
    assert!(!at_once(&producer, BY_KEY).await);
    assert_eq!(one::<i64>(&owner, "select count(*) from outbox where cancelled_at is not null").await, 2);
}

#[tokio::test]
async fn a_row_being_published_answers_false_at_once_and_is_left_alone() {
    let database = Database::migrated().await;
    let (producer, relay) = (database.producer().await, database.relay().await);
    let id = enqueue(&producer).await;
    allowed(&relay, "begin; select id from outbox for update").await;
    assert!(!at_once(&producer, &by_id(id)).await);
    assert!(!at_once(&producer, BY_KEY).await);
    allowed(&relay, "update outbox set sent_at = now(); commit").await;
    assert!(!at_once(&producer, &by_id(id)).await);
    assert!(!at_once(&producer, BY_KEY).await);
    assert_eq!(one::<i64>(&relay, "select count(*) from outbox where sent_at is not null").await, 1);
}

#[tokio::test]
async fn by_key_is_false_when_one_of_several_is_being_published_and_takes_the_others() {
    let database = Database::migrated().await;
    let (producer, relay) = (database.producer().await, database.relay().await);
    let locked = enqueue(&producer).await;
    enqueue(&producer).await;
    allowed(&relay, &format!("begin; select id from outbox where message_id = '{locked}' for update")).await;
    assert!(!at_once(&producer, BY_KEY).await);
    allowed(&relay, "rollback").await;
    let left = "select string_agg(message_id::text, ',') from outbox where cancelled_at is null";
    assert_eq!(one::<String>(&relay, left).await, locked.to_string());
    assert!(at_once(&producer, BY_KEY).await);
}

#[tokio::test]
async fn by_key_takes_all_pending_rows_of_that_tier_only() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    for _ in 0..3 {
        enqueue(&producer).await;
    }
    allowed(&producer, "select duebox.enqueue('later', 'k', 't', '{}'), duebox.enqueue('now', 'other', 't', '{}')")
        .await;
    allowed(&producer, "select duebox.enqueue('now', null, 't', '{}')").await;
    assert!(at_once(&producer, BY_KEY).await);
    assert_eq!(one::<i64>(&owner, "select count(*) from outbox where cancelled_at is not null").await, 3);
}

#[tokio::test]
async fn what_is_not_pending_is_gone() {
    let database = Database::migrated().await;
    let (producer, owner) = (database.producer().await, database.owner().await);
    assert!(!at_once(&producer, &by_id(Uuid::new_v4())).await);
    assert!(!at_once(&producer, "select duebox.cancel('now', null)").await);
    assert!(!at_once(&producer, "select duebox.cancel(null)").await);
    let id = enqueue(&producer).await;
    for column in ["sent_at", "parked_at"] {
        allowed(
            &owner,
            &format!("update outbox set sent_at = null, parked_at = null; update outbox set {column} = now()"),
        )
        .await;
        assert!(!at_once(&producer, &by_id(id)).await, "{column}");
        assert!(!at_once(&producer, BY_KEY).await, "{column}");
    }
}

#[tokio::test]
async fn a_cancelled_row_is_locked_until_the_caller_commits() {
    let database = Database::migrated().await;
    let (producer, relay) = (database.producer().await, database.relay().await);
    let id = enqueue(&producer).await;
    allowed(&producer, "begin").await;
    assert!(at_once(&producer, &by_id(id)).await);
    let claimable = "select id from outbox where cancelled_at is null for update skip locked";
    assert!(relay.query(claimable, &[]).await.unwrap().is_empty(), "a relay could claim it before the commit");
    allowed(&producer, "rollback").await;
    assert_eq!(relay.query(claimable, &[]).await.unwrap().len(), 1);
}
