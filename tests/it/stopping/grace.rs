//! The grace period is the longest that a stop ever takes, whatever the relay waits for.

use crate::support::between::{Between, Tables, counter};
use crate::support::daemon::Daemon;
use crate::support::proxy::Mode;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{millis, secs, wait_until};
use std::time::{Duration, Instant};

/// Deadlines that are all longer than the grace period; that is longer than the last word to a peer that is silent.
const TABLES: Tables<'_> = Tables {
    relay: "batch_deadline = \"60s\"\nshutdown_grace = \"4s\"",
    outbox: "poll = \"200ms\"",
    postgres: "statement_timeout = \"60s\"\nconnect_timeout = \"60s\"",
    tiers: "",
};
const GRACE: Duration = secs(4);
/// The promise, and room for a busy machine; any of the deadlines above would be longer.
const MOST: Duration = secs(4 + 5);

/// Asks for the end and waits for it: a clean stop where nothing is in flight, else perhaps one past the grace.
#[track_caller]
fn ends(state: &str, in_flight: bool, daemon: &mut Daemon) {
    let begun = Instant::now();
    daemon.sigterm();
    let code = daemon.wait_exit(secs(20));
    let took = begun.elapsed();
    eprintln!("{state}: {code} after {took:?}");
    assert!(took <= MOST, "{state}: {took:?}");
    assert!(code == 0 || (in_flight && code == 1 && took >= GRACE), "{state}: {code} after {took:?}: {}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stop_takes_longer_than_the_grace_period() {
    let between = Between::new(Rig::new("states"));
    let db = between.rig.db().await;
    let nothing_sent = async || assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0);
    for mode in [Mode::BlackHole, Mode::FreezeAccept, Mode::Reset] {
        for (side, proxy) in [("rabbitmq", &between.rabbit), ("postgres", &between.postgres)] {
            // Idle when it happens; a frozen peer is not even known yet.
            let mut daemon = between.start(TABLES);
            proxy.set(mode);
            ends(&format!("{side} {mode:?}, idle"), false, &mut daemon);
            // From the start: connecting, or between two tries.
            let tried = proxy.accepted();
            let mut daemon = between.launch(TABLES);
            wait_until(secs(20), async || proxy.accepted() > tried).await;
            ends(&format!("{side} {mode:?}, from the start"), false, &mut daemon);
            proxy.set(Mode::Pass);
        }
    }
    // In flight: the broker is silent, then the database as well.
    for also in [false, true] {
        let mut daemon = between.start(TABLES);
        between.rabbit.set(Mode::BlackHole);
        db.insert_rows("now", 500).await;
        wait_until(secs(20), async || counter(&daemon, "published", "now") >= 200.0).await;
        if also {
            between.postgres.set(Mode::BlackHole);
        }
        ends(&format!("in flight, database frozen too: {also}"), true, &mut daemon);
        between.rabbit.set(Mode::Pass);
        between.postgres.set(Mode::Pass);
        nothing_sent().await;
        db.batch_execute("truncate duebox.outbox").await.unwrap();
    }
    // In the middle of a settle that the database does not answer.
    let mut daemon = between.start(TABLES);
    between.rabbit.set(Mode::Delay(millis(400)));
    db.insert_rows("now", 500).await;
    wait_until(secs(20), async || counter(&daemon, "published", "now") >= 50.0).await;
    between.postgres.set(Mode::DropServerToClient);
    ends("settling, no answer", true, &mut daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_broker_does_not_lengthen_the_stop() {
    let between = Between::new(Rig::private("alarmed", Own::Rabbit));
    let (mut daemon, db) = (between.start(TABLES), between.rig.db().await);
    let limit = |limit: &str| {
        between.rig.rabbit().eval(&format!("vm_memory_monitor:set_vm_memory_high_watermark({limit})"));
    };
    limit("0.00001");
    db.insert_rows("now", 500).await;
    daemon.wait_unready(secs(20));
    ends("blocked", true, &mut daemon);
    // What slipped in before the block may have been confirmed, and then it is marked sent; nothing else is.
    let confirmed = db.count("sent_at is not null").await;
    assert_eq!(db.count("attempts > 0").await, 0);
    limit("{absolute, \"2GiB\"}");
    let inspector = crate::support::consumer::Inspector::connect(&between.rig.amqp_url()).await;
    wait_until(secs(10), async || inspector.depth("due").await.is_some_and(|n| i64::from(n) >= confirmed)).await;
}
