//! A full queue refuses: its rows wait without blame, in rare probes, and nobody else waits with them.

use super::{arrivals, repeated, shop};
use crate::support::consumer::{Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{millis, secs, wait_until};
use lapin::types::{AMQPValue, FieldTable};
use std::time::{Duration, Instant};

/// How long thousands of rows may take on a machine under load.
const LONG: Duration = secs(60);
/// O5: after the fault has gone.
const RECOVERY: Duration = secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_rows_to_a_full_queue_wait_unblamed_while_the_other_half_goes_out_once() {
    let rig = Rig::new("halffull");
    let broker = shop(&rig, &["free"]).await;
    // Classic and empty: with a length of 0 it refuses every single message.
    broker.declare_queue("full", FieldTable::default()).await;
    broker.bind("full", "shop", "full").await;
    let limit = r#"{"max-length":0,"overflow":"reject-publish"}"#;
    rig.rabbit().ctl(&["set_policy", "-p", rig.name(), "limit", "^full$", limit, "--apply-to", "queues"]);
    let role = rig.migrated();
    let db = rig.db().await;
    let insert = "insert into duebox.outbox (tier, routing_key, payload) \
        select 'events', case when i % 2 = 0 then 'full' else 'free' end, '{}' from generate_series(1, 6000) i";
    db.execute(insert, &[]).await.unwrap();
    let tables = "[relay]\nworkers = 16\nbatch_rows = 100\n[tier.events]\ntarget = { exchange = \"shop\" }\n";
    let daemon = rig.daemon(&role, tables);
    daemon.wait_ready(START);

    wait_until(LONG, async || db.count("routing_key = 'free' and sent_at is null").await == 0).await;
    let unblamed = "routing_key = 'full' and sent_at is null and parked_at is null and attempts = 0";
    assert_eq!(db.count(unblamed).await, 3000);
    // Each worker may have had one batch in flight before the first refusal was known.
    let nacked = daemon.metric(NACKED).unwrap();
    assert!(nacked <= 16.0 * 50.0 + 100.0, "{nacked} refusals");
    assert_bursts_are_small_and_rare(&daemon).await;
    assert_eq!(db.count(unblamed).await, 3000, "probes neither spend attempts nor park");
    assert!(db.count(&format!("{unblamed} and last_error like '%refused%'")).await > 0, "the reason is in the row");

    rig.rabbit().ctl(&["clear_policy", "-p", rig.name(), "limit"]);
    wait_until(RECOVERY, async || db.count("sent_at is null").await == 0).await;
    for queue in ["free", "full"] {
        let came = arrivals(&broker, queue, 3000, LONG).await;
        assert_eq!((came.len(), repeated(&came)), (3000, 0), "{queue}");
    }
}

const NACKED: &str = "duebox_nacked_total{tier=\"events\"}";

/// At most two bursts a second, each no larger than a probe.
async fn assert_bursts_are_small_and_rare(daemon: &Daemon) {
    let (started, mut last, mut bursts) = (Instant::now(), daemon.metric(NACKED).unwrap(), 0);
    let mut tick = tokio::time::interval(millis(50));
    while started.elapsed() < secs(6) {
        tick.tick().await;
        let now = daemon.metric(NACKED).unwrap();
        assert!(now - last <= 20.0, "{} refusals at once", now - last);
        bursts += i32::from(now > last);
        last = now;
    }
    assert!(bursts <= 12, "{bursts} bursts in 6 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn six_rows_to_a_queue_for_one_are_sent_exactly_as_far_as_they_are_in_it() {
    let rig = Rig::new("forone");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    broker.declare_queue("one", arguments).await;
    let daemon =
        rig.relay("[relay]\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"\n[tier.one]\ntarget = { queue = \"one\" }\n");
    let db = rig.db().await;
    db.insert_rows("one", 6).await;
    wait_until(secs(10), async || db.count("sent_at is null and last_error is null").await == 0).await;
    let sent = db.count("sent_at is not null").await;
    let depth = broker.depth("one").await.map(i64::from);
    // The broker overshoots its limit by a message or two.
    assert!((1..6).contains(&sent) && depth == Some(sent), "{sent} sent, {depth:?} in the queue");
    let refused = "sent_at is null and attempts = 0 and parked_at is null and last_error like '%refused%'";
    assert_eq!(db.count(refused).await, 6 - sent);
    let nacked = || daemon.metric("duebox_nacked_total{tier=\"one\"}");
    wait_until(secs(5), async || nacked() == Some(f64::from(6 - i32::try_from(sent).unwrap()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_full_delay_queue_refuses_are_on_time_all_the_same_and_other_tiers_go_on() {
    let rig = Rig::new("fulldelay");
    let daemon = rig.relay(
        "[tier.t4s]\ndelay = \"4s\"\nmax_length = 20\ntarget = { queue = \"due\" }\n\
         [tier.now]\ntarget = { queue = \"now\" }\n",
    );
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let db = rig.db().await;
    let inserted = Instant::now();
    let refused = async || db.count("last_error like '%refused%'").await > 0;
    // A quorum queue finds out a little late that it is full: until it has, there is no trouble.
    wait_until(secs(3), async || {
        db.insert_rows("t4s", 50).await;
        refused().await
    })
    .await;
    db.insert_rows("t4s", 300).await;
    let rows = usize::try_from(db.count("true").await).unwrap();
    daemon.wait_unready(secs(5));
    let (_, why) = daemon.get("/readyz").unwrap();
    assert!(why.contains("queue 'duebox.t4s.") && why.contains("refused all"), "{why}");
    for _ in 0..10 {
        let (_, id) = db.insert(&Row::new("now")).await;
        let came = arrivals(&broker, "now", 1, secs(2)).await;
        assert!(came.contains_key(&id.to_string()));
    }
    assert_eq!(db.count("tier = 't4s' and (attempts > 0 or parked_at is not null)").await, 0);
    let came = arrivals(&broker, "due", rows, secs(20)).await;
    assert_eq!((came.len(), repeated(&came)), (rows, 0));
    assert!(inserted.elapsed() >= millis(3_900), "none was early");
    // Nothing is left that could be a probe, and nothing is left that has to wait for one.
    daemon.wait_ready(RECOVERY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_limit_is_taken_away_gets_its_rows_although_nobody_tells_the_channel() {
    let rig = Rig::new("limit_gone");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_queue("full", quorum()).await;
    let limit = r#"{"max-length":1,"overflow":"reject-publish"}"#;
    let ctl = |args: &[&str]| rig.rabbit().ctl(args);
    let daemon = rig.relay("[relay]\nworkers = 1\n[tier.now]\ntarget = { queue = \"full\" }\n");
    let db = rig.db().await;
    db.insert_rows("now", 20).await;
    wait_until(secs(10), async || db.count("sent_at is null").await == 0).await;
    ctl(&["set_policy", "-p", rig.name(), "limit", "^full$", limit, "--apply-to", "queues"]);
    let refused = "sent_at is null and last_error like '%refused%'";
    // The channel finds out late; from then on it takes nothing.
    wait_until(secs(30), async || {
        db.insert_rows("now", 5).await;
        db.count(refused).await > 0
    })
    .await;
    ctl(&["clear_policy", "-p", rig.name(), "limit"]);
    wait_until(RECOVERY, async || db.count("sent_at is null").await == 0).await;
    daemon.wait_ready(RECOVERY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_not_called_ready_because_its_rows_come_one_by_one() {
    let rig = Rig::new("one_by_one");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_queue("full", FieldTable::default()).await;
    let limit = r#"{"max-length":0,"overflow":"reject-publish"}"#;
    rig.rabbit().ctl(&["set_policy", "-p", rig.name(), "limit", "^full$", limit, "--apply-to", "queues"]);
    let daemon = rig.relay("[tier.now]\ntarget = { queue = \"full\" }\n");
    rig.db().await.insert(&Row::new("now")).await;
    daemon.wait_unready(secs(30));
    let (_, why) = daemon.get("/readyz").unwrap();
    assert!(why.contains("queue 'full' refuses every message"), "{why}");
    rig.rabbit().ctl(&["clear_policy", "-p", rig.name(), "limit"]);
    daemon.wait_ready(RECOVERY);
}
