//! A broker that blocks publishing (memory or disk alarm): nothing is claimed, one connection waits, and it drains.

use super::held::in_transaction;
use crate::support::between::{Between, GRACE, Tables, WINDOW, counter};
use crate::support::oracle::Oracle;
use crate::support::rabbit::Rabbit;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{millis, secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];

fn alarm(server: &Rabbit, raised: bool) {
    // The rig gives each broker 2 GiB.
    let limit = if raised { "0.00001" } else { "{absolute, \"2GiB\"}" };
    server.eval(&format!("vm_memory_monitor:set_vm_memory_high_watermark({limit})"));
}

fn connections(server: &Rabbit) -> usize {
    server.eval("length(rabbit_networking:connections())").trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_broker_costs_no_claim_and_no_second_connection() {
    let between = Between::new(Rig::private("blocked", Own::Rabbit));
    let mut daemon = between.start(Tables { relay: "batch_deadline = \"20s\"", ..Tables::default() });
    let (db, superuser) = (between.rig.db().await, between.superuser().await);
    let server = between.rig.rabbit();
    let mut oracle = Oracle::new(&between.rig, TIERS);
    alarm(server, true);
    db.insert_rows("now", 1_000).await;
    // The broker tells a connection only when it publishes.
    daemon.wait_unready(secs(10));
    let (_, text) = daemon.get("/readyz").unwrap();
    assert!(text.contains("rabbitmq: the broker blocks publishing"), "{text}");
    wait_until(secs(1), async || in_transaction(&superuser, between.role()).await.is_zero()).await;
    db.insert_rows("now", 1_000).await;
    let published = counter(&daemon, "published", "now");
    // Longer than the heartbeat, the polls and every backoff's first steps.
    let begun = std::time::Instant::now();
    wait_until(secs(10), async || {
        assert!(in_transaction(&superuser, between.role()).await <= millis(200), "claimed while blocked");
        begun.elapsed() >= secs(5)
    })
    .await;
    assert_eq!(counter(&daemon, "published", "now"), published, "published while blocked");
    assert_eq!(connections(server), 1);
    assert_eq!(daemon.get("/healthz").unwrap().0, 200);
    alarm(server, false);
    let took = oracle.settled(&db).await;
    daemon.wait_ready(secs(10));
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= WINDOW, "only what slipped in before the block, not {duplicates}");
    eprintln!("blocked: drained {took:?} after it, {duplicates} copies");

    alarm(server, true);
    db.insert_rows("now", 100).await;
    daemon.wait_unready(secs(10));
    let begun = std::time::Instant::now();
    daemon.sigterm();
    let code = daemon.wait_exit(GRACE + secs(1));
    assert_eq!(code, 0, "{}", daemon.log());
    eprintln!("blocked: stopped in {:?}", begun.elapsed());
    alarm(server, false);
    let next = between.start(Tables::default());
    oracle.settled(&db).await;
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= 2 * WINDOW, "{duplicates}");
    drop(next);
}
