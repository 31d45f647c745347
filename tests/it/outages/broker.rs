//! The broker is restarted once and killed five times under load.

use super::calm;
use crate::support::between::{Between, Tables, counter};
use crate::support::daemon::Daemon;
use crate::support::oracle::Oracle;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

const TIERS: &[(&str, &str)] = &[("a", "due.a"), ("b", "due.b"), ("later", "due.later")];
const TABLES: Tables<'_> = Tables {
    relay: "workers = 8\nbatch_rows = 50",
    outbox: "",
    postgres: "",
    tiers: "[tier.a]\ntarget = { queue = \"due.a\" }\n\
        [tier.b]\ntarget = { queue = \"due.b\" }\n\
        [tier.later]\ndelay = \"1s\"\ntarget = { queue = \"due.later\" }\n",
};
/// What eight workers have in flight.
const IN_FLIGHT: usize = 8 * 50;
const FAULTS: usize = 6;

fn sum(daemon: &Daemon, name: &str) -> f64 {
    TIERS.iter().map(|(tier, _)| counter(daemon, name, tier)).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_costs_at_most_a_batch_of_copies_per_worker() {
    let between = Between::new(Rig::private("mq_killed", Own::Rabbit));
    let daemon = between.start(TABLES);
    let db = between.rig.db().await;
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let server = between.rig.rabbit();
    // Queues that are younger than this would be lost with their messages, which is the broker's affair.
    server.sync();
    for fault in 0..FAULTS {
        let (confirmed, unknown) = (sum(&daemon, "confirmed"), sum(&daemon, "unknown"));
        for (tier, _) in TIERS {
            db.insert_rows(tier, 1_500).await;
        }
        wait_until(secs(20), async || sum(&daemon, "confirmed") >= confirmed + 300.0).await;
        if fault == 0 {
            server.stop();
        } else {
            server.kill9();
        }
        daemon.wait_unready(secs(10));
        let (_, text) = daemon.get("/readyz").unwrap();
        assert!(text.lines().any(|line| line.starts_with("rabbitmq: ")), "{text}");
        // Every confirm in flight has ended in an error: nothing is claimed while the broker is away.
        let idle = "select count(*) from pg_stat_activity where usename = $1 and state like 'idle in transaction%'";
        let superuser = between.superuser().await;
        wait_until(secs(2), async || {
            superuser.query_one(idle, &[&between.role()]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        if fault < 2 {
            calm(&daemon, &between.rabbit);
        }
        server.start();
        let took = oracle.settled(&db).await;
        daemon.wait_ready(secs(10));
        let unknown = sum(&daemon, "unknown") - unknown;
        assert!(unknown <= IN_FLIGHT as f64, "{unknown}");
        eprintln!("fault {fault}: drained {took:?} after the return, {unknown} unknown outcomes");
    }
    let duplicates = oracle.duplicates(&db).await;
    assert!(duplicates <= FAULTS * IN_FLIGHT, "{duplicates}");
    assert_eq!(db.count("attempts > 0 or parked_at is not null").await, 0);
    eprintln!("broker died {FAULTS} times: {duplicates} copies");
}
