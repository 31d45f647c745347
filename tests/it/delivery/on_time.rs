//! Lateness of a tier, under a steady stream and when many rows are due at one instant. `benches/lateness.sh` runs this
//! at higher rates and reads its figures.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::{Consumer, Delivery};
use crate::support::db::Db;
use crate::support::rig::Rig;
use crate::support::wait::secs;
use std::time::Duration;

const QUEUE: &str = "[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n";
const HOLD: &str = "[tier.t2s]\nkind = \"hold\"\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n";

/// A row that Postgres holds is judged by Postgres's clock, which is this machine's and this test's.
const NEVER: f64 = 0.0;

#[tokio::test(flavor = "multi_thread")]
async fn none_arrives_before_its_due_time_and_all_within_a_second_of_it() {
    steady(&Rig::alone("on_time"), "queue", QUEUE, CLOCK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn none_that_postgres_holds_arrives_before_its_due_time_and_all_within_a_second_of_it() {
    steady(&Rig::alone("held_on_time"), "hold", HOLD, NEVER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_thousands_due_at_one_instant_none_is_early() {
    burst(&Rig::alone("burst"), "queue", QUEUE, CLOCK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_thousands_that_postgres_holds_until_one_instant_none_is_early() {
    burst(&Rig::alone("held_burst"), "hold", HOLD, NEVER).await;
}

fn number(name: &str, default: i32) -> i32 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Rows at a steady rate, in steps of 10 ms, so that a rate of thousands is one of transactions that a client can make.
async fn steady(rig: &Rig, kind: &str, tier: &str, early: f64) {
    let (rate, seconds) = (number("LATENESS_RATE", 200), number("LATENESS_SECONDS", 4));
    let total = rate * seconds;
    let producing = async |db: &Db| {
        let (steps, mut written) = (seconds * 100, 0);
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        for step in 1..=steps {
            tick.tick().await;
            let wanted = total * step / steps;
            db.insert_rows("t2s", wanted - written).await;
            written = wanted;
        }
    };
    let late = measured(rig, tier, total, producing).await;
    tell(&format!("lateness of {kind} at {rate}/s over {seconds} s"), &late);
    assert!(late[0] >= -early, "one came {} s early", -late[0]);
    assert!(late[late.len() - 1] < 1.0, "one came {} s late", late[late.len() - 1]);
}

/// All rows in one statement. How long they take is the machine's business; that they come, and when the first, is ours.
async fn burst(rig: &Rig, kind: &str, tier: &str, early: f64) {
    let total = number("BURST", 2_000);
    let late = measured(rig, tier, total, async |db: &Db| db.insert_rows("t2s", total).await).await;
    tell(&format!("lateness of {kind}, {total} due at one instant"), &late);
    assert!(late[0] >= -early, "one came {} s early", -late[0]);
}

/// How late each of `total` rows arrives that are written so, sorted.
async fn measured(rig: &Rig, tier: &str, total: i32, producing: impl AsyncFnOnce(&Db)) -> Vec<f64> {
    let mut daemon = rig.relay(tier);
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let consuming = async {
        let mut arrived: Vec<Delivery> = Vec::new();
        while arrived.len() < usize::try_from(total).unwrap() {
            arrived.push(due.next(SOON).await.expect("every row arrives"));
        }
        arrived
    };
    let ((), arrived) = tokio::join!(producing(&db), consuming);
    assert!(due.next(Duration::ZERO).await.is_none(), "once each");
    let mut late = lateness(&db, 2.0, &arrived).await;
    late.sort_by(f64::total_cmp);
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(10)), 0);
    late
}

fn tell(what: &str, late: &[f64]) {
    let quantile = |per_mille: usize| late[(late.len() - 1) * per_mille / 1_000] * 1_000.0;
    println!(
        "{what}: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms, first {:.1} ms",
        quantile(500),
        quantile(990),
        quantile(1_000),
        quantile(0)
    );
}
