//! A relay that is stopped for half a delay: every order is due on its own clock, and what fell due meanwhile at the start.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::{Consumer, Delivery};
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use std::collections::BTreeSet;
use std::time::SystemTime;

const TIERS: &str = "[tier.fixed]\ndelay = \"6s\"\ntarget = { queue = \"due\" }\n\
                     [tier.later]\nkind = \"hold\"\ntarget = { queue = \"due\" }\n";

/// Of one that was not waited for: on a machine with other work.
const LATE: f64 = 3.0;

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_was_stopped_for_half_a_delay_is_late_for_nothing_but_what_fell_due_meanwhile() {
    let rig = Rig::alone("half_stopped");
    let mut daemon = rig.relay(TIERS);
    let db = rig.db().await;
    let held = |key: &str, due_in| Row { due_in: Some(due_in), ..Row::new("later").key(key) };
    db.insert(&Row::new("fixed").key("in the delay queue")).await;
    db.insert(&held("due meanwhile", 3.0)).await;
    db.insert(&held("due afterwards", 12.0)).await;
    wait_until(SOON, async || db.count("sent_at is not null or available_at > now()").await == 3).await;
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(10)), 0);
    db.insert(&Row::new("fixed").key("written meanwhile")).await;
    db.insert(&held("held meanwhile", 11.0)).await;
    // Half of the longest delay, by the clock that counts it.
    wait_until(secs(10), async || db.count("key = 'due meanwhile' and due_at < now() - interval '1 s'").await == 1)
        .await;
    assert_eq!(db.count("key = 'due meanwhile' and sent_at is not null").await, 0);
    let daemon = Daemon::start(&rig, &std::fs::read_to_string(daemon.config()).unwrap());
    daemon.wait_ready(START);
    let started = SystemTime::now();
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let mut arrived: Vec<Delivery> = Vec::new();
    for _ in 0..5 {
        arrived.push(due.next(secs(15)).await.expect("every one arrives"));
    }
    let name = |delivery: &Delivery| delivery.headers["x-duebox-key"].clone();
    assert_eq!(arrived.iter().map(name).collect::<BTreeSet<_>>().len(), 5, "once each");
    for (delivery, late) in arrived.iter().zip(lateness(&db, 6.0, &arrived).await) {
        let key = name(delivery);
        assert!(late >= -CLOCK, "{key}: {} s early", -late);
        // The consumer began to look when the relay was ready, and one that was due before then waited for that.
        let after = delivery.received.duration_since(started).unwrap_or_default().as_secs_f64();
        assert!(late.min(after) < LATE, "{key}: {late} s after it was due, {after} s after the start");
    }
    // The last one may be with its consumer before it is marked.
    wait_until(SOON, async || db.count("attempts > 0 or sent_at is null").await == 0).await;
    drop(daemon);
}
