//! The server stops taking writes without closing a connection, as a switchover does.

use super::{READ_ONLY, assert_says, tried_again};
use crate::support::between::{Between, Tables, counter};
use crate::support::db::Db;
use crate::support::oracle::Oracle;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};
use duebox::admin::health::{Health, Part};
use duebox::outbox::connect::{self, Settings};
use duebox::outbox::count;
use duebox::outbox::doorbell::Doorbell;
use duebox::stop::Stop;
use std::sync::Arc;
use std::time::Instant;

/// So that nothing but a ring or the failover itself moves the relay.
const ASLEEP: Tables<'_> = Tables { relay: "", outbox: "poll = \"1h\"", postgres: "", tiers: "" };

async fn sessions(superuser: &Db, role: &str) -> Vec<i32> {
    let pids = superuser.query("select pid from pg_stat_activity where usename = $1", &[&role]).await.unwrap();
    pids.iter().map(|row| row.get(0)).collect()
}

/// Waits until none of these sessions is left.
async fn given_up(superuser: &Db, role: &str, before: &[i32]) {
    wait_until(secs(10), async || sessions(superuser, role).await.iter().all(|pid| !before.contains(pid))).await;
}

fn read_only(rig: &Rig, on: bool) {
    let postgres = rig.postgres();
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
    let before = sessions(&superuser, between.role()).await;
    assert!(before.len() > 1, "the pool and the listener: {before:?}");
    read_only(&between.rig, true);
    assert_says(&daemon, "postgres: ", READ_ONLY);
    assert_says(&daemon, "listener: ", READ_ONLY);
    given_up(&superuser, between.role(), &before).await;
    let published = counter(&daemon, "published", "now");
    let sent = db.count("sent_at is not null").await;
    db.insert_rows("now", 500).await;
    tried_again(&between, 4);
    assert_eq!(counter(&daemon, "published", "now"), published, "what cannot be marked sent is not published");
    assert_eq!(db.count("sent_at is not null").await, sent);
    read_only(&between.rig, false);
    oracle.settled(&db).await;
    daemon.wait_ready(secs(10));
    assert_eq!(oracle.duplicates(&db).await, 0);
    assert_eq!(db.count("attempts > 0").await, 0);
}

/// All of it takes less than the 10 s after which the listener would find out by itself.
#[tokio::test(flavor = "multi_thread")]
async fn one_statement_that_is_refused_gives_up_every_connection_and_the_listener() {
    let rig = Rig::private("moved", Own::Postgres);
    let (role, superuser) = (rig.migrated(), rig.db_as("postgres").await);
    let settings = Settings {
        url: rig.postgres_url_as(&role).into(),
        password: None,
        schema: "duebox".into(),
        connect_timeout: secs(5),
        statement_timeout: secs(10),
    };
    let (db, health, stop) =
        (connect::Db::new(settings.clone(), 4).unwrap(), Arc::<Health>::default(), Stop::default());
    let doorbell = Doorbell::new(settings.clone(), db.clone(), Arc::default(), (Arc::clone(&health), Arc::default()));
    let stopped = stop.clone();
    let begun = Instant::now();
    let listener = tokio::spawn(async move { doorbell.run(&stopped).await });
    let listens = || health.parts().get(&Part::Listener).cloned();
    wait_until(secs(5), async || listens() == Some(None)).await;
    let ask = || count::overview(&db);
    tokio::try_join!(ask(), ask(), ask(), ask()).unwrap();
    let before = sessions(&superuser, &role).await;
    assert_eq!(before.len(), 5, "four of the pool and the listener");
    read_only(&rig, true);
    wait_until(secs(5), async || ask().await.is_err_and(|error| error.to_string().contains(READ_ONLY))).await;
    wait_until(secs(5), async || listens().flatten().is_some_and(|problem| problem.contains(READ_ONLY))).await;
    let took = begun.elapsed();
    assert!(took < secs(10), "{took:?}: it may have found out by itself");
    given_up(&superuser, &role, &before).await;
    stop.raise();
    listener.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_with_nothing_to_do_notices_too_and_is_woken_by_the_first_row_after() {
    let between = Between::new(Rig::private("read_only_idle", Own::Postgres));
    let daemon = between.start(ASLEEP);
    let db = between.rig.db().await;
    read_only(&between.rig, true);
    assert_says(&daemon, "postgres: ", READ_ONLY);
    assert_says(&daemon, "listener: ", READ_ONLY);
    read_only(&between.rig, false);
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
