//! A relay that dies, or stands still, gives its rows back: the locks of its transaction are its claim.

use crate::support::between::{Between, Tables, counter};
use crate::support::db::Db;
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, millis, secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];

/// One worker that holds everything for as long as it lives.
const GREEDY: Tables<'_> =
    Tables { relay: "workers = 1\nbatch_rows = 500\nbatch_deadline = \"60s\"", outbox: "", postgres: "", tiers: "" };

async fn digest(db: &Db) -> String {
    let all = "select coalesce(string_agg(format('%s %s', id, sent_at), ',' order by id), '') from duebox.outbox";
    db.query_one(all, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_killed_relay_are_free_at_once() {
    let between = Between::new(Rig::new("killed"));
    let first = between.start(GREEDY);
    let db = between.rig.db().await;
    let mut oracle = Oracle::new(&between.rig, TIERS);
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 500).await;
    wait_until(secs(10), async || counter(&first, "published", "now") == 500.0).await;
    let second = between.start_past(Tables::default());
    assert_eq!(db.count("sent_at is not null").await, 0, "the first relay holds them all");
    first.kill9();
    let took = oracle.settled(&db).await;
    assert!(took < secs(5), "{took:?}");
    second.kill9();
    drop((first, second));

    // The same with nobody left, and somebody started later.
    between.rabbit.set(Mode::Pass);
    let third = between.start(GREEDY);
    between.rabbit.set(Mode::BlackHole);
    db.insert_rows("now", 500).await;
    wait_until(secs(10), async || counter(&third, "published", "now") == 500.0).await;
    third.kill9();
    drop(third);
    let fourth = between.start_past(Tables::default());
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0, "what the dead ones published was swallowed");
    drop(fourth);
    eprintln!("killed relay: its rows were sent {took:?} later");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_stood_still_past_its_deadline_does_no_harm_when_it_goes_on() {
    let between = Between::new(Rig::alone("frozen"));
    let frozen = between.start(Tables { relay: "workers = 1\nbatch_rows = 100", ..Tables::default() });
    let db = between.rig.db().await;
    let mut oracle = Oracle::new(&between.rig, TIERS);
    // Late confirms: they lie in its socket while it stands still, and it will believe them.
    between.rabbit.set(Mode::Delay(millis(1_000)));
    db.insert_rows("now", 100).await;
    wait_until(secs(10), async || counter(&frozen, "published", "now") == 100.0).await;
    frozen.sigstop();
    assert_eq!(db.count("sent_at is not null").await, 0);
    let other = between.start_past(Tables::default());
    let took = oracle.settled(&db).await;
    assert!(took < secs(6), "Postgres takes them back after batch_deadline + 1 s, not after {took:?}");
    let settled = digest(&db).await;
    between.rabbit.set(Mode::Pass);
    frozen.sigcont();
    // Whether it had its confirms before it stood still decides which of the two it tries first.
    let told = |log: &str| log.contains("is not marked sent") || log.contains("come back by themselves");
    eventually("the batch is lost to it", secs(10), || told(&frozen.log()));
    frozen.wait_ready(secs(10));
    assert_eq!(digest(&db).await, settled, "what the other relay settled stays as it is");
    other.kill9();
    drop(other);
    db.insert_rows("now", 10).await;
    oracle.settled(&db).await;
    let duplicates = oracle.duplicates(&db).await;
    // None, if it stood still before its first frame was out.
    assert!(duplicates <= 100, "one batch at most, not {duplicates}");
    eprintln!("frozen relay: its rows were sent {took:?} later, {duplicates} copies");
}
