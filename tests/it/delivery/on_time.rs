//! Lateness of a tier under a steady stream. `benches/lateness.sh` runs this at higher rates and reads its figures.

use super::{CLOCK, SOON, lateness};
use crate::support::consumer::{Consumer, Delivery};
use crate::support::rig::Rig;
use crate::support::wait::secs;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn none_arrives_before_its_due_time_and_all_within_a_second_of_it() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rate, seconds) = (number("LATENESS_RATE", 200), number("LATENESS_SECONDS", 4));
    let total = rate * seconds;
    let rig = Rig::alone("on_time");
    let daemon = rig.relay("[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n");
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    // In steps of 10 ms, so that a rate of thousands is one of transactions that a client can make.
    let producing = async {
        let (steps, mut written) = (seconds * 100, 0);
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        for step in 1..=steps {
            tick.tick().await;
            let wanted = total * step / steps;
            db.insert_rows("t2s", wanted - written).await;
            written = wanted;
        }
    };
    let consuming = async {
        let mut arrived: Vec<Delivery> = Vec::new();
        while arrived.len() < usize::try_from(total).unwrap() {
            arrived.push(due.next(SOON).await.expect("every row arrives"));
        }
        arrived
    };
    let ((), arrived) = tokio::join!(producing, consuming);
    let mut late: Vec<f64> = lateness(&rig.db().await, 2.0, &arrived).await;
    late.sort_by(f64::total_cmp);
    let quantile = |per_mille: usize| late[(late.len() - 1) * per_mille / 1_000] * 1_000.0;
    println!(
        "lateness at {rate}/s over {seconds} s: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms, first {:.1} ms",
        quantile(500),
        quantile(990),
        quantile(1_000),
        quantile(0)
    );
    assert!(late[0] >= -CLOCK, "one came {} s early", -late[0]);
    assert!(late[late.len() - 1] < 1.0, "one came {} s late", late[late.len() - 1]);
    assert!(due.next(Duration::ZERO).await.is_none());
    daemon.sigterm();
    let mut daemon = daemon;
    assert_eq!(daemon.wait_exit(secs(10)), 0);
}
