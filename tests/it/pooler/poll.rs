//! `wake = "poll"` through a pooler with two sessions for four workers, a sweep and a count.

use super::{Pooled, found};
use crate::support::daemon::Daemon;
use crate::support::db::Db;
use crate::support::oracle::Oracle;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

const TABLES: &str = "[outbox]\nwake = \"poll\"\n\n[relay]\nworkers = 4\nbatch_rows = 50\n\n\
    [tier.now]\ntarget = { queue = \"due\" }\n\n[sweep]\nevery = \"1s\"\ngrace = \"1s\"\n\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"1s\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";

const ORDERS: &str = "create table orders (id bigint primary key, status text not null, due timestamptz not null)";

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_rows_and_a_sweep_go_through_it_and_leave_nothing_on_its_sessions() {
    let pooled = Pooled::new("pooled");
    let (rig, db) = (&pooled.rig, pooled.rig.db().await);
    db.batch_execute(ORDERS).await.unwrap();
    let grant = format!("grant select (id, status, due), update (status) on orders to {}", pooled.role);
    db.batch_execute(&grant).await.unwrap();
    let expected = found(&rig.db_as(&pooled.role).await).await;
    let mut daemon = Daemon::start(rig, &format!("{}{TABLES}", pooled.base().render()));
    daemon.wait_ready(START);
    let mut oracle = Oracle::new(rig, &[("now", "due")]);
    let neighbour = pooled.neighbour().await;
    for _ in 0..4 {
        db.insert_rows("now", 1_000).await;
        let pending = async || db.count("sent_at is null").await;
        while pending().await > 0 {
            assert_eq!(found(&neighbour).await, expected, "a neighbour in the middle of it");
        }
        oracle.settled(&db).await;
    }
    db.batch_execute("insert into orders select i, 'pending', now() from generate_series(1, 200) i").await.unwrap();
    let open = "select count(*) from orders where status = 'pending'";
    wait_until(secs(30), async || db.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0).await;
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0);
    assert_eq!(db.count("attempts > 0 or last_error is not null").await, 0);
    assert_clean(&pooled, &expected).await;
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
    assert_clean(&pooled, &expected).await;
    pooled.assert_nothing_prepared(&daemon.log());
    // Not a word about the database: no wait for one of the two sessions was taken for an outage.
    let troubled = daemon.log().lines().any(|line| line.contains("postgres: ") || line.contains("ERROR"));
    assert!(!troubled, "{}", daemon.log());
}

/// No transaction is left open, and both sessions are as new.
async fn assert_clean(pooled: &Pooled, expected: &[String]) {
    let superuser = pooled.rig.db_as("postgres").await;
    let open = "select count(*) from pg_stat_activity where usename = $1 and state <> 'idle'";
    wait_until(secs(5), async || superuser.query_one(open, &[&pooled.role]).await.unwrap().get::<_, i64>(0) == 0).await;
    let (one, other) = (pooled.neighbour().await, pooled.neighbour().await);
    // Both at once, so that each has a session of its own.
    let (first, second) = tokio::join!(held(&one), held(&other));
    assert_eq!((first.as_slice(), second.as_slice()), (expected, expected), "a session of the pooler");
    for neighbour in [one, other] {
        neighbour.batch_execute("rollback").await.unwrap();
    }
}

async fn held(neighbour: &Db) -> Vec<String> {
    neighbour.batch_execute("begin").await.unwrap();
    found(neighbour).await
}
