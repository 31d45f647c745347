//! As process 1 of a container, where the kernel ignores signals that nobody asked for.

use crate::support::between::{Between, GRACE, Tables, counter};
use crate::support::daemon::Daemon;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use nix::sys::signal::Signal;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn process_1_hears_its_signals_too() {
    assert!(
        Daemon::can_be_first(),
        "this machine makes no process namespaces: run it as root, or allow `unshare --pid`"
    );
    let between = Between::new(Rig::new("pid1"));
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = between.start_first(Tables::default());
        let begun = Instant::now();
        daemon.signal(signal);
        assert_eq!(daemon.wait_exit(GRACE + secs(5)), 0, "{signal}: {}", daemon.log());
        eprintln!("process 1, idle: {signal} in {:?}", begun.elapsed());
    }
    let mut daemon = between.start_first(Tables { relay: "batch_deadline = \"60s\"", ..Tables::default() });
    let db = between.rig.db().await;
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 100).await;
    wait_until(secs(10), async || counter(&daemon, "published", "now") >= 100.0).await;
    daemon.signal(Signal::SIGTERM);
    daemon.wait_log("stopping", secs(5));
    let begun = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait_exit(GRACE), 1, "{}", daemon.log());
    eprintln!("process 1, second signal: {:?}", begun.elapsed());
    assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0);
}
