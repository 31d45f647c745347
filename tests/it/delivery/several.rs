//! Many producers and several relays: every row once.

use crate::support::consumer::{Consumer, Delivery};
use crate::support::daemon::Daemon;
use crate::support::db::{Db, Row};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use futures_util::future::join_all;
use std::collections::HashSet;

/// Rows of one transaction: most applications write one, imports write thousands.
const SIZES: [i32; 4] = [1, 9, 90, 2_400];

fn distinct(deliveries: &[Delivery]) -> usize {
    deliveries.iter().map(|delivery| &delivery.message_id).collect::<HashSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_rows_committed_while_the_relay_runs_arrive_once_each() {
    const PRODUCERS: usize = 4;
    const ROUNDS: usize = 10;
    const TOTAL: i64 = 100_000;
    let rig = Rig::new("volume");
    let daemon = rig.relay("[tier.now]\ntarget = { queue = \"all\" }\n");
    let mut consumer = Consumer::new(&rig.amqp_url(), "all").await;
    let producers = (0..PRODUCERS).map(async |_| {
        let db = rig.db().await;
        for _ in 0..ROUNDS {
            for size in SIZES {
                db.insert_rows("now", size).await;
            }
        }
    });
    join_all(producers).await;
    let db = rig.db().await;
    assert_eq!(db.count("true").await, TOTAL, "the producers wrote what this test is about");
    wait_until(secs(150), async || db.count("sent_at is null").await == 0).await;
    let arrived = consumer.drain_fast().await;
    assert_eq!(arrived.len(), usize::try_from(TOTAL).unwrap(), "no duplicate, none missing");
    assert_eq!(distinct(&arrived), arrived.len());
    assert_eq!(db.count("attempts <> 0 or last_error is not null").await, 0);
    assert_eq!(daemon.metric("duebox_confirmed_total{tier=\"now\"}"), Some(100_000.0));
    // Counted every few seconds; a tier with nothing pending has no backlog to show.
    wait_until(secs(15), async || daemon.metric("duebox_backlog{tier=\"now\"}").unwrap_or(0.0) == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_transaction_commits_late_goes_out_at_its_commit() {
    let rig = Rig::new("late_commit");
    // An hour: what is found in seconds was not found by polling.
    let daemon = rig.relay("[outbox]\npoll = \"1h\"\n[tier.now]\ntarget = { queue = \"all\" }\n");
    let (slow, db) = (rig.db().await, rig.db().await);
    let mut consumer = Consumer::new(&rig.amqp_url(), "all").await;
    slow.batch_execute("begin").await.unwrap();
    let (id, message_id) = slow.insert(&Row::new("now").key("slow")).await;
    db.insert_rows("now", 1_000).await;
    wait_until(secs(10), async || db.count("sent_at is not null").await == 1_000).await;
    assert_eq!(consumer.drain_fast().await.len(), 1_000);
    assert_eq!(db.count(&format!("id < {id}")).await, 0, "it has the lowest id and available_at of all");
    slow.batch_execute("commit").await.unwrap();
    let delivery = consumer.next(secs(2)).await.expect("its commit makes it go out");
    assert_eq!(delivery.message_id, message_id.to_string());
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_with_different_tiers_send_every_row_once_and_leave_the_unknown_alone() {
    let rig = Rig::new("two_relays");
    let role = rig.create_role("relay");
    rig.migrate(&["--grant-relay", &role]);
    let start = |tiers: [&str; 2]| {
        // Small batches: many meetings of the two.
        let mut toml = format!("{}[relay]\nbatch_rows = 50\n", rig.relay_base(&role).render());
        for tier in tiers {
            toml.push_str(&format!("[tier.{tier}]\ntarget = {{ queue = \"all\" }}\n"));
        }
        Daemon::start(&rig, &toml)
    };
    let (old, new) = (start(["t1", "t2"]), start(["t2", "t3"]));
    old.wait_ready(START);
    new.wait_ready(START);
    let db = rig.db().await;
    db.insert_rows("t4", 1).await;
    let untouched =
        "select xmin::text || ' ' || xmax::text || ' ' || available_at::text from duebox.outbox where tier = 't4'";
    let before: String = db.query_one(untouched, &[]).await.unwrap().get(0);
    let mut consumer = Consumer::new(&rig.amqp_url(), "all").await;
    let producers = ["t1", "t2", "t2", "t3"].map(async |tier| {
        let db = rig.db().await;
        for _ in 0..25 {
            db.insert_rows(tier, 100).await;
        }
    });
    join_all(producers).await;
    wait_until(secs(60), async || db.count("sent_at is null and tier <> 't4'").await == 0).await;
    let arrived = consumer.drain_fast().await;
    assert_eq!(arrived.len(), 10_000, "no duplicate, none missing");
    assert_eq!(distinct(&arrived), 10_000);
    let shared = |daemon: &Daemon| daemon.metric("duebox_confirmed_total{tier=\"t2\"}").unwrap_or(0.0);
    assert!(shared(&old) > 0.0 && shared(&new) > 0.0, "both took their share of the tier that both know");
    for daemon in [&old, &new] {
        daemon.wait_log("tier 't4'", secs(5));
        assert_eq!(daemon.metric("duebox_unknown_tier{tier=\"t4\"}"), Some(1.0));
        // The other relay's own tier may be named while it has pending rows, and no longer.
        let own = |tier: &str| daemon.metric(&format!("duebox_unknown_tier{{tier=\"{tier}\"}}"));
        wait_until(secs(15), async || own("t1").is_none() && own("t3").is_none()).await;
    }
    let after: String = db.query_one(untouched, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "neither parked nor claimed");
    // A backend may report the end of its burst up to 10 s late; one that spins never falls below.
    wait_until(secs(30), async || transactions_within_two_seconds(&db).await < 60).await;
}

/// Transactions that the database ended in a window of two seconds, this test's few included.
async fn transactions_within_two_seconds(db: &Db) -> i64 {
    let ask = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
    let count = async || -> i64 { db.query_one(ask, &[]).await.unwrap().get(0) };
    let before = count().await;
    db.batch_execute("select pg_sleep(2)").await.unwrap();
    count().await - before
}
