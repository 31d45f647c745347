//! From commit to the broker at a modest rate, where each row wakes a relay that sleeps or lingers.
//! `benches/at_once.sh` runs this with the release build and for longer, and reads its figures.

use super::{AT_ONCE, NEVER, NOW, asleep};
use crate::support::consumer::Consumer;
use crate::support::rig::Rig;
use crate::support::wait::secs;
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_with_the_broker_milliseconds_after_its_commit() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rate, seconds) = (number("AT_ONCE_RATE", 100), number("AT_ONCE_SECONDS", 4));
    let total: u64 = rate * seconds;
    let rig = Rig::alone("at_once");
    // A ring that is missed costs an hour, not a poll.
    let daemon = rig.relay(&format!("{NEVER}{NOW}"));
    asleep(&daemon);
    let db = rig.db().await;
    let insert = db.prepare("insert into duebox.outbox (tier, key, payload) values ('now', $1, '{}')").await.unwrap();
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let producing = async {
        let mut committed = HashMap::new();
        let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).unwrap());
        for n in 0..total {
            tick.tick().await;
            let key = n.to_string();
            db.execute(&insert, &[&key]).await.unwrap();
            committed.insert(key, Instant::now());
        }
        committed
    };
    let consuming = async {
        let mut arrived = HashMap::new();
        while arrived.len() < usize::try_from(total).unwrap() {
            let delivery = due.next(AT_ONCE).await.expect("every row arrives");
            arrived.insert(delivery.headers["x-duebox-key"].clone(), delivery.at);
        }
        arrived
    };
    let (committed, arrived) = tokio::join!(producing, consuming);
    let took = |(key, at): (&String, &Instant)| arrived[key].saturating_duration_since(*at);
    let mut took: Vec<Duration> = committed.iter().map(took).collect();
    took.sort_unstable();
    let quantile = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000].as_secs_f64() * 1_000.0;
    println!(
        "commit to consumer at {rate}/s over {seconds} s: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms",
        quantile(500),
        quantile(990),
        quantile(1_000)
    );
    assert!(quantile(990) <= 1_000.0, "p99");
    assert!(took[took.len() - 1] <= secs(5), "worst");
}
