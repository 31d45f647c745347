//! The database is restarted and killed under load and while everything sleeps.

use super::calm;
use crate::support::between::{Between, Tables, WINDOW, counter};
use crate::support::oracle::Oracle;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_dies_costs_at_most_a_batch_of_copies_per_worker() {
    let between = Between::new(Rig::private("pg_killed", Own::Postgres));
    let daemon = between.start(Tables::default());
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let server = between.rig.postgres();
    for (fault, end) in [("immediate shutdown", true), ("kill -9", false)] {
        let db = between.rig.db().await;
        let before = counter(&daemon, "confirmed", "now");
        db.insert_rows("now", 4_000).await;
        wait_until(secs(10), async || counter(&daemon, "confirmed", "now") >= before + 200.0).await;
        if end {
            server.stop_immediate();
        } else {
            server.kill9();
        }
        daemon.wait_unready(secs(10));
        let (_, text) = daemon.get("/readyz").unwrap();
        assert!(text.lines().any(|line| line.starts_with("postgres: ")), "{text}");
        assert!(!text.contains("rabbitmq: "), "{text}");
        calm(&daemon, &between.postgres);
        server.start();
        let db = between.rig.db().await;
        let took = oracle.settled(&db).await;
        daemon.wait_ready(secs(10));
        eprintln!("{fault}: drained {took:?} after the return");
    }
    // While everything sleeps, and the LISTEN connection with it.
    server.stop_immediate();
    daemon.wait_unready(secs(10));
    server.start();
    daemon.wait_ready(secs(10));
    let db = between.rig.db().await;
    db.insert_rows("now", 100).await;
    oracle.settled(&db).await;
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= 2 * WINDOW, "{duplicates}");
    assert_eq!(db.count("attempts > 0").await, 0);
    assert!(daemon.metric("duebox_reconnects_total{side=\"postgres\"}") >= Some(3.0));
    eprintln!("database died three times: {duplicates} copies");
}
