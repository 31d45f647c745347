//! Trouble of a queue, an exchange or a permission is its hop's: rows wait unblamed, others go on, and it ends by itself.

use super::{arrivals, repeated};
use crate::support::consumer::{Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::{Db, Row};
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::ExchangeKind;
use lapin::options::ExchangeDeleteOptions;
use std::time::Duration;

/// O5 and O7: after the fault has gone, and until it is told.
const RECOVERY: Duration = secs(30);
const TOLD: Duration = secs(10);

/// No row was blamed for what was not its fault.
async fn assert_unblamed(db: &Db) {
    assert_eq!(db.count("attempts > 0 or parked_at is not null").await, 0);
}

#[track_caller]
fn assert_told(daemon: &Daemon, parts: &[&str]) {
    daemon.wait_unready(TOLD);
    let (_, why) = daemon.get("/readyz").unwrap();
    assert!(parts.iter().all(|part| why.contains(part)), "{parts:?} in {why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_delay_queue_loses_nothing_and_is_declared_again() {
    let rig = Rig::new("deleted");
    let daemon = rig
        .relay("[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n[tier.now]\ntarget = { queue = \"now\" }\n");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let db = rig.db().await;
    let queue = delay_queue(&db).await;
    broker.delete_queue(&queue).await;
    db.insert_rows("t2s", 300).await;
    assert_told(&daemon, &[&queue, "unroutable"]);
    let (_, other) = db.insert(&Row::new("now")).await;
    assert!(arrivals(&broker, "now", 1, secs(5)).await.contains_key(&other.to_string()), "the other tier goes on");
    let came = arrivals(&broker, "due", 300, RECOVERY).await;
    assert_eq!((came.len(), repeated(&came)), (300, 0), "what is marked sent is what has arrived");
    assert_unblamed(&db).await;
    // Late rows went straight to the target; a fresh one finds the delay queue in its place again.
    wait_until(TOLD, async || broker.depth(&queue).await.is_some()).await;
    db.insert(&Row::new("t2s")).await;
    daemon.wait_ready(RECOVERY);
    arrivals(&broker, "due", 1, secs(10)).await;
}

/// The name of the only delay queue, which the daemon has recorded.
async fn delay_queue(db: &Db) -> String {
    wait_until(secs(10), async || {
        let query = "select 1 from duebox.state where name like 'queue.%'";
        !db.query(query, &[]).await.unwrap().is_empty()
    })
    .await;
    let query = "select substr(name, 7) from duebox.state where name like 'queue.%'";
    let name: String = db.query_one(query, &[]).await.unwrap().get(0);
    assert!(name.starts_with("duebox.t2s.2000."), "{name}");
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_exchange_stops_its_tiers_only_and_until_it_is_back() {
    let rig = Rig::new("exchange");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    exchanges(&broker).await;
    let daemon = rig.relay(
        "[tier.fixed]\ntarget = { exchange = \"fixed\", routing_key = \"a\" }\n\
         [tier.keyed]\ntarget = { exchange = \"keyed\" }\n[tier.now]\ntarget = { queue = \"now\" }\n",
    );
    let db = rig.db().await;
    load(&db, "before").await;
    for (queue, n) in [("a", 100), ("b", 100), ("now", 100)] {
        arrivals(&broker, queue, n, secs(20)).await;
    }
    let told = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    // Rows with keys of their own do not hide that it is their exchange.
    delete(&broker, "keyed").await;
    db.insert(&Row { routing_key: Some("b".into()), ..Row::new("keyed").key("without") }).await;
    wait_until(TOLD, async || told().contains("exchange 'keyed'")).await;
    delete(&broker, "fixed").await;
    load(&db, "without").await;
    let came = arrivals(&broker, "now", 100, secs(20)).await;
    assert_eq!((came.len(), repeated(&came)), (100, 0), "the tier without an exchange goes on");
    wait_until(TOLD, async || told().contains("exchange 'fixed'")).await;
    assert_eq!(db.count("key = 'without' and tier <> 'now' and sent_at is not null").await, 0);
    assert_unblamed(&db).await;

    exchanges(&broker).await;
    for (queue, n) in [("a", 100), ("b", 101)] {
        let came = arrivals(&broker, queue, n, RECOVERY).await;
        assert_eq!((came.len(), repeated(&came)), (n, 0), "{queue}");
    }
    assert_unblamed(&db).await;
    daemon.wait_ready(RECOVERY);
}

async fn delete(broker: &Inspector, exchange: &str) {
    let options = ExchangeDeleteOptions::default();
    broker.channel().await.exchange_delete(exchange.into(), options).await.unwrap();
}

async fn exchanges(broker: &Inspector) {
    for (exchange, queue) in [("fixed", "a"), ("keyed", "b")] {
        broker.declare_exchange(exchange, ExchangeKind::Direct).await;
        broker.declare_queue(queue, quorum()).await;
        broker.bind(queue, exchange, queue).await;
    }
}

/// 100 rows for each of the three tiers, mixed.
async fn load(db: &Db, key: &str) {
    let insert = "insert into duebox.outbox (tier, key, routing_key, payload) \
        select tier, $1, case when tier = 'keyed' then 'b' end, '{}' \
        from generate_series(1, 100), unnest(array['fixed', 'keyed', 'now']) tier";
    db.execute(insert, &[&key]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_permission_is_told_with_user_and_exchange_and_waited_out() {
    let rig = Rig::new("revoked");
    let daemon = rig.relay(
        "[relay]\nmax_attempts = 1\n[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n\
         [tier.now]\ntarget = { queue = \"now\" }\n",
    );
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let db = rig.db().await;
    db.insert_rows("now", 10).await;
    arrivals(&broker, "now", 10, secs(10)).await;
    permit(&rig, "");
    // The broker remembers for a while what a channel may do, so rows flow on until it looks again.
    let told = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    let refused = format!("refused for user '{}'", rig.name());
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    wait_until(secs(90), async || {
        tick.tick().await;
        db.insert_rows("now", 1).await;
        db.insert_rows("t2s", 1).await;
        told().contains(&refused) && db.count("sent_at is null").await > 20
    })
    .await;
    assert!(told().contains("exchange 'amq.default'"), "{}", told());
    daemon.wait_log(&refused, secs(5));
    assert_unblamed(&db).await;

    permit(&rig, ".*");
    wait_until(RECOVERY, async || db.count("sent_at is null").await == 0).await;
    assert_unblamed(&db).await;
    daemon.wait_ready(RECOVERY);
    let rows = db.count("tier = 'now'").await;
    let came = arrivals(&broker, "now", usize::try_from(rows - 10).unwrap(), secs(20)).await;
    assert_eq!(came.len() as i64, rows - 10);
}

/// Gives the daemon's user these rights and no others, as `rabbitmqctl set_permissions` does.
fn permit(rig: &Rig, pattern: &str) {
    rig.rabbit().ctl(&["set_permissions", "-p", rig.name(), rig.name(), pattern, pattern, pattern]);
}
