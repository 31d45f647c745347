//! Tiers that hold rows in Postgres, and tiers that leave the waiting to the plugin.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::ExchangeKind;

const HOLD: &str = "[tier.later]\nkind = \"hold\"\ntarget = { queue = \"due\" }\n";

/// A tier of the plugin whose exchange stands there already and is none of the plugin's.
const FAKE: &str = "[tier.later]\nkind = \"plugin\"\ndelay = \"30s\"\n\
                    target = { exchange = \"fake\", routing_key = \"k\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_held_row_leaves_postgres_when_it_is_due_and_one_that_is_due_earlier_does_not_wait_for_it() {
    let rig = Rig::new("hold");
    let daemon = rig.relay(&format!("[outbox]\npoll = \"1h\"\n{HOLD}"));
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    db.insert(&Row { due_in: Some(5.0), ..Row::new("later").key("second") }).await;
    // Seen and slept on before the earlier one comes.
    wait_until(SOON, async || asleep_until_due(&daemon)).await;
    db.insert(&Row { due_in: Some(1.5), ..Row::new("later").key("first") }).await;
    let mut arrived = Vec::new();
    for key in ["first", "second"] {
        let delivery = due.next(SOON).await.expect(key);
        assert_eq!(delivery.headers["x-duebox-key"], key);
        arrived.push(delivery);
    }
    for late in lateness(&db, 0.0, &arrived).await {
        assert!((-CLOCK..3.0).contains(&late), "{late} s after it was due");
    }
}

/// Asleep, and knowing that something falls due before the next poll in an hour.
fn asleep_until_due(daemon: &Daemon) -> bool {
    let (_, body) = daemon.get("/status").expect("an answer");
    println!("{body}");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    status["wakefulness"] == "asleep"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_tier_with_a_delay_counts_it_from_the_order_and_without_one_wants_a_due_time() {
    let rig = Rig::new("hold_delay");
    let tiers = format!("{HOLD}[tier.t2s]\nkind = \"hold\"\ndelay = \"2s\"\ntarget = {{ queue = \"due\" }}\n");
    let daemon = rig.relay(&tiers);
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    db.insert(&Row::new("later").key("no time")).await;
    db.insert(&Row::new("t2s").key("two seconds")).await;
    let arrived = due.next(SOON).await.expect("it arrives");
    assert_eq!(arrived.headers["x-duebox-key"], "two seconds");
    let late = lateness(&db, 2.0, &[arrived]).await[0];
    assert!((-CLOCK..3.0).contains(&late), "{late} s after it was due");
    let parked = "select last_error from duebox.outbox where key = 'no time' and parked_at is not null";
    let reason: String = db.query_one(parked, &[]).await.unwrap().get(0);
    assert!(reason.contains("due_at is null") && reason.contains("'later'"), "{reason}");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_row_is_cancelled_until_it_leaves_and_never_arrives() {
    let rig = Rig::new("hold_cancel");
    let daemon = rig.relay(HOLD);
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let (_, gone) = db.insert(&Row { due_in: Some(4.0), ..Row::new("later").key("gone") }).await;
    db.insert(&Row { due_in: Some(4.1), ..Row::new("later").key("by key") }).await;
    db.insert(&Row { due_in: Some(4.5), ..Row::new("later").key("stays") }).await;
    // A cancel never waits: not for a relay either that has a row in its hands to put it off.
    wait_until(SOON, async || db.count("available_at > now()").await == 3).await;
    let cancelled: bool = db.query_one("select duebox.cancel($1)", &[&gone]).await.unwrap().get(0);
    let by_key: bool = db.query_one("select duebox.cancel('later', 'by key')", &[]).await.unwrap().get(0);
    assert!(cancelled && by_key, "nobody has claimed them yet");
    let arrived = due.next(SOON).await.expect("the other arrives");
    assert_eq!(arrived.headers["x-duebox-key"], "stays");
    assert!(due.next(secs(0)).await.is_none());
    assert_eq!(db.count("cancelled_at is not null and sent_at is null").await, 2);
    let late: bool = db.query_one("select duebox.cancel('later', 'stays')", &[]).await.unwrap().get(0);
    assert!(!late, "it is with its consumer");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_the_plugin_is_told_in_one_sentence_at_start() {
    let rig = Rig::new("no_plugin");
    let role = rig.migrated();
    let tiers =
        "[tier.later]\nkind = \"plugin\"\ntarget = { queue = \"due\" }\n[tier.now]\ntarget = { queue = \"due\" }\n";
    let mut daemon = Daemon::start(&rig, &format!("{}{tiers}", rig.relay_base(&role).render()));
    assert_eq!(daemon.wait_exit(START), 78);
    let log = daemon.log();
    for text in ["no delayed-message plugin", "duebox.delayed", "kind = \"hold\""] {
        assert!(log.contains(text), "{text} in\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_is_told_the_time_left_and_what_it_would_return_counts_as_sent() {
    let rig = Rig::new("fake_plugin");
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    inspector.declare_exchange("fake", ExchangeKind::Direct).await;
    let daemon = rig.relay(FAKE);
    let db = rig.db().await;
    // Nothing is bound, as it looks to a broker whose plugin keeps the message: mandatory would bring it back.
    db.insert(&Row::new("later").key("kept")).await;
    wait_until(SOON, async || db.count("sent_at is not null and attempts = 0").await == 1).await;
    inspector.declare_queue("behind", quorum()).await;
    inspector.bind("behind", "fake", "k").await;
    db.insert(&Row { age: 10.0, ..Row::new("later").key("20 s left") }).await;
    db.insert(&Row { age: 60.0, ..Row::new("later").key("overdue") }).await;
    wait_until(SOON, async || db.count("sent_at is not null").await == 3).await;
    let mut wait = [None, None];
    for delivery in inspector.drain("behind").await {
        let at = usize::from(delivery.headers["x-duebox-key"] == "overdue");
        wait[at] = Some(delivery.headers.get("x-delay").cloned());
    }
    assert_eq!(wait[1], Some(None), "overdue, it is not delayed at all");
    let left: f64 = wait[0].clone().flatten().expect("a time left").parse().expect("in milliseconds");
    assert!((10_000.0..=20_000.0).contains(&left), "{left} ms left");
    assert!(daemon.log().contains("delayed-message plugin"), "warned at start: {}", daemon.log());
}
