//! What is in flight is told: while it hangs, and while the stop waits for it.

use crate::support::between::{Between, Tables, counter};
use crate::support::daemon::run_cli;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs, wait_until};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn what_hangs_is_told_and_so_it_is_while_the_stop_waits_for_it() {
    let between = Between::new(Rig::new("told"));
    let relay = "batch_deadline = \"50s\"\nshutdown_grace = \"60s\"";
    let (mut daemon, db) = (between.start(Tables { relay, ..Tables::default() }), between.rig.db().await);
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 100).await;
    wait_until(secs(20), async || counter(&daemon, "published", "now") >= 100.0).await;
    let told = || serde_json::from_str::<Value>(&daemon.get("/status").unwrap().1).unwrap();
    eventually("/status says what hangs", secs(10), || told()["in_flight"]["wait_for_confirms"].as_u64() >= Some(1));
    assert!(told()["in_flight"]["oldest_age_seconds"].as_f64() > Some(0.0), "{}", told());
    let config = daemon.config().display().to_string();
    let status = || run_cli(&["status", "--config", &config]).1;
    assert!(status().contains("waiting for the broker's confirms, the oldest for "), "{}", status());

    daemon.sigterm();
    eventually("/readyz says what the stop waits for", secs(10), || {
        let (code, text) = daemon.get("/readyz").expect("it answers until the end");
        code == 503 && text.contains("stopping: ") && text.contains("waiting for the broker's confirms")
    });
    assert!(status().starts_with("not ok: the daemon is stopping: "), "{}", status());
    let line = daemon.wait_log("stopping: no new claims", secs(5));
    assert!(line.contains(" waiting for the broker's confirms"), "{line}");
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(10)), 1, "{}", daemon.log());
}
