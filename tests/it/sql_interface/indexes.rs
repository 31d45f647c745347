//! Each index serves the queries that its comment names.
//!
//! Counted in the server's own statistics of the running transaction, so functions are seen as they
//! run and not as a copy of their statements would be planned.

use super::rig::{Database, allowed, one};
use tokio_postgres::Client;

/// 20,000 rows: one in ten pending, one in a hundred parked, the rest sent; two tiers.
const ROWS: &str = "insert into outbox (tier, key, payload, available_at, sent_at, parked_at)
    select case when n % 2 = 0 then 'now' else 'later' end, 'k' || n, '{}', now() - n * interval '1 second',
        case when n % 10 > 0 and n % 100 <> 55 then now() end, case when n % 100 = 55 then now() end
    from generate_series(1, 20000) n";

const PENDING: &str = "sent_at is null and parked_at is null and cancelled_at is null";

async fn filled() -> (Database, Client) {
    let database = Database::migrated().await;
    let owner = database.owner().await;
    allowed(&owner, ROWS).await;
    allowed(&owner, "vacuum analyze outbox").await;
    (database, owner)
}

/// How often `sql` scans the index, and the whole table. A difference, because the server's counters
/// of the transaction still hold what this session did shortly before it.
async fn scans(client: &Client, index: &str, sql: &str) -> (i64, i64) {
    let counted = async || -> (i64, i64) {
        let of = |name: &str| format!("select pg_stat_get_xact_numscans('{name}'::regclass)");
        (one(client, &of(index)).await, one(client, &of("outbox")).await)
    };
    allowed(client, "begin").await;
    let before = counted().await;
    allowed(client, sql).await;
    let after = counted().await;
    allowed(client, "rollback").await;
    (after.0 - before.0, after.1 - before.1)
}

async fn serves(client: &Client, index: &str, queries: &[&str]) {
    for sql in queries {
        let (index_scans, table_scans) = scans(client, index, sql).await;
        assert!(index_scans > 0, "{index} is not used by: {sql}");
        assert_eq!(table_scans, 0, "the whole table is read by: {sql}");
    }
}

#[tokio::test]
async fn the_counter_sees_a_scan_of_the_whole_table() {
    let (_database, owner) = filled().await;
    assert_eq!(scans(&owner, "outbox_key", "select count(payload) from outbox").await, (0, 1));
}

#[tokio::test]
async fn the_pending_index_serves_claims_counts_and_the_next_available_at() {
    let (_database, owner) = filled().await;
    let claim = format!(
        "select o.id, o.payload::text from unnest(array['now', 'later']) as t(tier) cross join lateral (
             select * from outbox where tier = t.tier and available_at <= now() and {PENDING}
             order by available_at, id limit 64 for update skip locked) o"
    );
    let one_tier = format!(
        "select id, payload::text from outbox where tier = 'now' and available_at <= now() and {PENDING}
         order by available_at, id limit 64 for update skip locked"
    );
    let next = format!("select min(available_at) from outbox where tier = 'now' and {PENDING}");
    let backlog = format!("select tier, count(*) from outbox where available_at <= now() and {PENDING} group by tier");
    let oldest = format!(
        "select available_at from outbox where tier = 'now' and available_at <= now() and {PENDING}
         order by available_at limit 1"
    );
    serves(&owner, "outbox_pending", &[&claim, &one_tier, &next, &backlog, &oldest]).await;
}

#[tokio::test]
async fn a_claim_walks_the_pending_index_in_order_and_sorts_nothing() {
    let (_database, owner) = filled().await;
    let explain = format!(
        "explain select id from outbox where tier = 'now' and available_at <= now() and {PENDING}
         order by available_at, id limit 64 for update skip locked"
    );
    let plan: Vec<String> = owner.query(&explain, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(plan.contains("Index Scan using outbox_pending"), "{plan}");
    assert!(plan.contains("Index Cond: ((tier = 'now'::text) AND (available_at <= now()))"), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}

#[tokio::test]
async fn the_key_index_serves_cancel_requeue_and_trace() {
    let (_database, owner) = filled().await;
    let trace = include_str!("../../../sql/trace.sql").replace("$1", "'k7'");
    serves(&owner, "outbox_key", &["select cancel('now', 'k100')", "select requeue('later', 'k55')", &trace]).await;
}

#[tokio::test]
async fn the_unique_message_id_serves_cancel_and_requeue() {
    let (_database, owner) = filled().await;
    for (function, key) in [("cancel", "k100"), ("requeue", "k55")] {
        let id: String = one(&owner, &format!("select message_id::text from outbox where key = '{key}'")).await;
        serves(&owner, "outbox_message_id_key", &[&format!("select {function}('{id}'::uuid)")]).await;
    }
}

#[tokio::test]
async fn the_parked_index_serves_status() {
    let (_database, owner) = filled().await;
    serves(&owner, "outbox_parked", &["select count(*) from outbox where parked_at is not null"]).await;
}
