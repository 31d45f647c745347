//! Nothing is believed but the broker's word: what has no answer is published again under the same `message_id`.

use crate::support::between::{Between, Tables, WINDOW, counter};
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_black_hole_swallows_is_not_marked_sent() {
    let between = Between::new(Rig::new("swallowed"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 100).await;
    // Handed to the socket, and given up on at the batch's deadline.
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
    assert_eq!(db.count("sent_at is not null").await, 0);
    wait_until(secs(10), async || counter(&daemon, "unknown", "now") >= 100.0).await;
    assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0, "an outage spends no attempt");
    daemon.wait_unready(secs(10));
    between.rabbit.set(Mode::Pass);
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let took = oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0, "nothing had arrived");
    eprintln!("black hole: drained {took:?} after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_ack_costs_a_copy_with_the_same_message_id() {
    let between = Between::new(Rig::new("lost_ack"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    between.rabbit.set(Mode::DropServerToClient);
    db.insert_rows("now", 1_000).await;
    wait_until(secs(10), async || counter(&daemon, "unknown", "now") >= 50.0).await;
    assert_eq!(db.count("sent_at is not null").await, 0);
    daemon.wait_unready(secs(10));
    between.rabbit.set(Mode::Pass);
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let took = oracle.settled(&db).await;
    let unknown = counter(&daemon, "unknown", "now");
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates > 0, "the broker had taken them");
    assert!(duplicates <= WINDOW, "{duplicates}");
    assert!(unknown >= duplicates as f64, "{duplicates} copies of {unknown} unknown outcomes");
    assert_eq!(counter(&daemon, "confirmed", "now"), 1_000.0);
    assert_eq!(counter(&daemon, "nacked", "now"), 0.0);
    eprintln!("lost acks: drained {took:?} after it, {duplicates} copies");
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_made_anew_after_the_broker_closed_the_connection_confirm_too() {
    let between = Between::new(Rig::new("closed"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    for closings in 1..=2_i32 {
        db.insert_rows("now", 3_000).await;
        let sent = i64::from(closings - 1) * 3_000 + 200;
        wait_until(secs(10), async || db.count("sent_at is not null").await >= sent).await;
        close_connections(&between.rig);
        Oracle::new(&between.rig, TIERS).settled(&db).await;
    }
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= 2 * WINDOW, "{duplicates}");
    assert!(daemon.metric("duebox_reconnects_total{side=\"rabbitmq\"}") >= Some(1.0));
    let unknown = counter(&daemon, "unknown", "now");
    assert!(unknown > 0.0, "there was something in flight each time");
    eprintln!("closed by the broker: {unknown} unknown outcomes, {duplicates} copies");
}

fn close_connections(rig: &Rig) {
    rig.rabbit().eval(&format!(
        "[rabbit_networking:close_connection(P, <<\"for the test\">>)
            || [{{pid, P}}, {{vhost, <<\"{}\">>}}] <- rabbit_networking:connection_info_all([pid, vhost])]",
        rig.name()
    ));
}
