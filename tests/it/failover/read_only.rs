//! The server stops taking writes without closing a connection, as a switchover does.

use super::{READ_ONLY, assert_says, tried_again};
use crate::support::between::{Between, Tables, counter};
use crate::support::oracle::Oracle;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

/// So that nothing but a ring or the failover itself moves the relay.
const ASLEEP: Tables<'_> = Tables { relay: "", outbox: "poll = \"1h\"", postgres: "", tiers: "" };

const PIDS: &str = "select pid from pg_stat_activity where usename = $1";

fn read_only(between: &Between, on: bool) {
    let postgres = between.rig.postgres();
    let value = if on { "set default_transaction_read_only = on" } else { "reset default_transaction_read_only" };
    postgres.sql("postgres", &format!("alter system {value}"));
    postgres.sql("postgres", "select pg_reload_conf()");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_while_the_server_takes_no_writes_and_all_of_it_after() {
    let between = Between::new(Rig::private("read_only", Own::Postgres));
    let daemon = between.start(ASLEEP);
    let (db, superuser) = (between.rig.db().await, between.superuser().await);
    db.batch_execute("set session characteristics as transaction read write").await.unwrap();
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    db.insert_rows("now", 2_000).await;
    // In the middle of it: batches that hold their rows may still settle them.
    wait_until(secs(20), async || counter(&daemon, "confirmed", "now") >= 200.0).await;
    let before: Vec<i32> =
        superuser.query(PIDS, &[&between.role()]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(before.len() > 1, "the pool and the listener: {before:?}");
    read_only(&between, true);
    assert_says(&daemon, "postgres: ", READ_ONLY);
    assert_says(&daemon, "listener: ", READ_ONLY);
    wait_until(secs(10), async || {
        let now = superuser.query(PIDS, &[&between.role()]).await.unwrap();
        now.iter().all(|row| !before.contains(&row.get(0)))
    })
    .await;
    let published = counter(&daemon, "published", "now");
    let sent = db.count("sent_at is not null").await;
    db.insert_rows("now", 500).await;
    tried_again(&between, 4);
    assert_eq!(counter(&daemon, "published", "now"), published, "what cannot be marked sent is not published");
    assert_eq!(db.count("sent_at is not null").await, sent);
    read_only(&between, false);
    oracle.settled(&db).await;
    daemon.wait_ready(secs(10));
    assert_eq!(oracle.duplicates(&db).await, 0);
    assert_eq!(db.count("attempts > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_with_nothing_to_do_notices_too_and_is_woken_by_the_first_row_after() {
    let between = Between::new(Rig::private("read_only_idle", Own::Postgres));
    let daemon = between.start(ASLEEP);
    let db = between.rig.db().await;
    read_only(&between, true);
    assert_says(&daemon, "postgres: ", READ_ONLY);
    assert_says(&daemon, "listener: ", READ_ONLY);
    read_only(&between, false);
    daemon.wait_ready(secs(20));
    wait_until(secs(20), async || daemon.get("/readyz").is_some_and(|(_, text)| !text.contains("listener: "))).await;
    db.insert_rows("now", 1).await;
    Oracle::new(&between.rig, &[("now", "due")]).settled(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_read_is_refused_and_waited_for() {
    let between = Between::new(Rig::new("read_only_role"));
    let alter = |to: &str| {
        let alter = format!("alter role {} {to}", between.role());
        between.rig.postgres().sql("postgres", &alter);
    };
    alter("set default_transaction_read_only = on");
    let daemon = between.launch(ASLEEP);
    assert_says(&daemon, "postgres: ", READ_ONLY);
    let db = between.rig.db().await;
    db.insert_rows("now", 10).await;
    tried_again(&between, 3);
    alter("reset default_transaction_read_only");
    Oracle::new(&between.rig, &[("now", "due")]).settled(&db).await;
    daemon.wait_ready(secs(10));
}
