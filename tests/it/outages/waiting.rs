//! What was written during an outage goes out when it ends, without another row to wake anybody.

use crate::support::between::{Between, Tables};
use crate::support::oracle::Oracle;
use crate::support::proxy::{Mode, Proxy};
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];
/// So that nothing but the end of the outage can wake the relay.
const ASLEEP: Tables<'_> = Tables { relay: "", outbox: "poll = \"1h\"", postgres: "", tiers: "" };

async fn catches_up(name: &str, faulty: fn(&Between) -> &Proxy, part: &str) {
    let between = Between::new(Rig::new(name));
    let daemon = between.start(ASLEEP);
    let db = between.rig.db().await;
    faulty(&between).set(Mode::Reset);
    daemon.wait_unready(secs(10));
    let (_, text) = daemon.get("/readyz").unwrap();
    assert!(text.lines().any(|line| line.starts_with(part)), "{text}");
    db.insert_rows("now", 1_000).await;
    // The outage lasts: it is tried again, and again in vain.
    let tried = faulty(&between).accepted() + 2;
    wait_until(secs(15), async || faulty(&between).accepted() >= tried).await;
    assert_eq!(db.count("sent_at is not null").await, 0);
    faulty(&between).set(Mode::Pass);
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let took = oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0);
    daemon.wait_ready(secs(10));
    eprintln!("{part} away: drained {took:?} after its return");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_brokers_outage_leave_when_it_returns() {
    catches_up("no_broker", |between| &between.rabbit, "rabbitmq: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_announced_while_the_database_was_out_of_reach_leave_when_it_returns() {
    catches_up("no_database", |between| &between.postgres, "postgres: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_announced_while_only_the_listener_is_down_are_polled_for() {
    let between = Between::new(Rig::new("deaf"));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", between.role(), between.postgres.port(), between.rig.name());
    let listen = format!("listen_url = \"{url}\"");
    let daemon = between.start_past(Tables { postgres: &listen, ..ASLEEP });
    eventually("it listens", secs(10), || between.postgres.connections() > 0);
    let db = between.rig.db().await;
    db.insert_rows("now", 1).await;
    Oracle::new(&between.rig, TIERS).settled(&db).await;
    between.postgres.set(Mode::Reset);
    wait_until(secs(10), async || daemon.get("/readyz").is_some_and(|(_, text)| text.contains("listener: "))).await;
    db.insert_rows("now", 1).await;
    wait_until(secs(5), async || db.count("sent_at is null").await == 0).await;
    assert_eq!(daemon.get("/readyz").unwrap().0, 200, "polling is slower, not broken");
}

async fn survives_silence(name: &str, faulty: fn(&Between) -> &Proxy, part: &str) {
    let between = Between::new(Rig::new(name));
    faulty(&between).set(Mode::FreezeAccept);
    let daemon = between.launch(Tables::default());
    daemon.wait_log(&format!("{part}: "), secs(10));
    daemon.wait_unready(secs(1));
    let (_, text) = daemon.get("/readyz").unwrap();
    assert!(text.lines().any(|line| line.starts_with(part)), "{text}");
    assert_eq!(daemon.get("/healthz").unwrap().0, 200, "waiting is not ill health");
    let db = between.rig.db().await;
    db.insert_rows("now", 10).await;
    faulty(&between).set(Mode::Pass);
    let mut oracle = Oracle::new(&between.rig, TIERS);
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0);
    daemon.wait_ready(secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_accepts_and_says_nothing_is_an_outage() {
    survives_silence("mute_broker", |between| &between.rabbit, "rabbitmq").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_accepts_and_says_nothing_is_an_outage() {
    survives_silence("mute_database", |between| &between.postgres, "postgres").await;
}
