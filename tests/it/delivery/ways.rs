//! The ways to the target: an exchange with the rows' own keys, and a delay that was changed.

use super::{SOON, lateness};
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::db::{Db, Row};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::ExchangeKind;

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_keys_of_their_own_reach_the_queues_behind_the_exchange() {
    const KEYS: [&str; 3] = ["order.created", "order.paid", "order.closed"];
    let rig = Rig::new("row_keys");
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    inspector.declare_exchange("events", ExchangeKind::Direct).await;
    for key in KEYS {
        inspector.declare_queue(key, quorum()).await;
        inspector.bind(key, "events", key).await;
    }
    let daemon = rig.relay("[tier.events]\ntarget = { exchange = \"events\" }\n");
    let db = rig.db().await;
    for key in KEYS {
        db.insert(&Row { routing_key: Some(key.into()), ..Row::new("events").key(key) }).await;
    }
    wait_until(SOON, async || db.count("sent_at is not null").await == 3).await;
    for key in KEYS {
        let arrived = inspector.drain(key).await;
        assert_eq!(arrived.len(), 1, "queue {key}");
        assert_eq!(arrived[0].headers["x-duebox-key"], key);
        assert_eq!((arrived[0].exchange.as_str(), arrived[0].routing_key.as_str()), ("events", key));
    }
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_delay_makes_a_new_queue_and_the_old_one_drains_on_its_own_clock() {
    let rig = Rig::new("changed_delay");
    let role = rig.create_role("relay");
    rig.migrate(&["--grant-relay", &role]);
    let opening = rig.relay_base(&role).render();
    let toml = |delay: &str| format!("{opening}[tier.t]\ndelay = \"{delay}\"\ntarget = {{ queue = \"due\" }}\n");
    let db = rig.db().await;
    let mut daemon = Daemon::start(&rig, &toml("6s"));
    daemon.wait_ready(START);
    let (_, old) = db.insert(&Row::new("t")).await;
    wait_until(SOON, async || db.count("sent_at is not null").await == 1).await;
    wait_until(SOON, async || queues(&db).await.len() == 1).await;
    let old_queue = queues(&db).await.remove(0);
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(10)), 0);

    let daemon = Daemon::start(&rig, &toml("1s"));
    daemon.wait_ready(START);
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let (_, new) = db.insert(&Row::new("t")).await;
    wait_until(SOON, async || queues(&db).await.len() == 2).await;
    let path = daemon.config().to_str().unwrap().to_owned();
    let (_, status, _) = run_cli(&["status", "--config", &path]);
    let listed: Vec<&str> = status.lines().filter(|line| line.contains("delay queue")).collect();
    assert_eq!(listed.len(), 1, "only the old one: {status}");
    assert!(listed[0].contains(&old_queue), "{status}");
    for (message_id, delay) in [(new, 1.0), (old, 6.0)] {
        let delivery = due.next(SOON).await.expect("both arrive");
        assert_eq!(delivery.message_id, message_id.to_string(), "the new one overtakes the old one");
        let late = lateness(&db, delay, &[delivery]).await[0];
        assert!((0.0..1.0).contains(&late), "after a delay of {delay} s it came {late} s late");
    }
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    assert_eq!(inspector.depth(&old_queue).await, Some(0), "drained, and not deleted");
}

/// Delay queues that were ever declared.
async fn queues(db: &Db) -> Vec<String> {
    let rows = db.query("select substr(name, 7) from duebox.state where name like 'queue.%'", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
