//! Producers of every kind at once, for as long as it takes the relay to fall asleep dozens of times.

use super::{NEVER, NOW, asleep};
use crate::support::consumer::Consumer;
use crate::support::db::Db;
use crate::support::rig::Rig;
use crate::support::wait::{millis, secs};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long the producers go on.
const SPAN: Duration = Duration::from_secs(30);

/// When each key was committed.
type Committed = HashMap<String, Instant>;

/// Inserts again and again: `turn` runs one transaction for the n-th time and says how long to be quiet then.
async fn produce(db: Db, name: &str, turn: impl AsyncFn(&Db, &str, u64) -> Duration) -> Committed {
    let mut committed = Committed::new();
    let started = Instant::now();
    for n in 0.. {
        if started.elapsed() > SPAN {
            break;
        }
        let key = format!("{name}-{n}");
        let quiet = turn(&db, &key, n).await;
        committed.insert(key, Instant::now());
        // The pace of the producers is what the test is about: pauses on either side of a relay's linger.
        tokio::time::sleep(quiet).await;
    }
    committed
}

/// One row, or every third time a dozen: for those a relay stays awake by itself.
fn insert(key: &str, n: u64) -> String {
    let rows = if n.is_multiple_of(3) { 12 } else { 1 };
    format!(
        "insert into duebox.outbox (tier, key, payload) select 'now', '{key}', '{{}}' from generate_series(1, {rows})"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_leaves_at_once_while_the_relay_falls_asleep_dozens_of_times() {
    let rig = Rig::alone("mixed");
    let daemon = rig.relay(&format!("{NEVER}{NOW}"));
    asleep(&daemon);
    let before = daemon.metric("duebox_sleeps_total").unwrap();
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let single = produce(rig.db().await, "single", async |db, key, n| {
        db.batch_execute(&insert(key, n)).await.unwrap();
        millis(n * 37 % 300)
    });
    let open = produce(rig.db().await, "open", async |db, key, n| {
        db.batch_execute(&format!("begin; {}", insert(key, n))).await.unwrap();
        tokio::time::sleep(millis(n * 13 % 60)).await;
        db.batch_execute("commit").await.unwrap();
        millis(n * 41 % 250)
    });
    let undone = produce(rig.db().await, "undone", async |db, key, n| {
        let undone = insert(&format!("{key}-undone"), n);
        db.batch_execute(&format!(
            "begin; savepoint s; {undone}; rollback to s; {}; {undone}; rollback to s",
            insert(key, n)
        ))
        .await
        .unwrap();
        db.batch_execute(&format!("rollback; begin; {}; savepoint s; {undone}; rollback to s", insert(key, n)))
            .await
            .unwrap();
        tokio::time::sleep(millis(n * 5 % 60)).await;
        db.batch_execute("commit").await.unwrap();
        millis(n * 43 % 400)
    });
    let consumed = async {
        let mut arrived = HashMap::new();
        let started = Instant::now();
        while started.elapsed() < SPAN + secs(5) {
            if let Some(delivery) = due.next(secs(1)).await {
                arrived.insert(delivery.headers["x-duebox-key"].clone(), delivery.at);
            }
        }
        arrived
    };
    let (single, open, undone, arrived) = tokio::join!(single, open, undone, consumed);
    let committed: Committed = single.into_iter().chain(open).chain(undone).collect();
    let mut took: Vec<Duration> =
        committed.iter().map(|(key, at)| arrived[key].saturating_duration_since(*at)).collect();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    let sleeps = daemon.metric("duebox_sleeps_total").unwrap() - before;
    eprintln!("{} rows, {sleeps} sleeps; p50 {:?}, p99 {:?}, most {:?}", took.len(), at(50), at(99), at(100));
    assert!(sleeps >= 50.0, "only {sleeps} sleeps");
    // An hour when one is missed. A machine under load may keep a few waiting for a moment.
    assert!(at(99) <= secs(1) && at(100) <= secs(10), "p99 {:?}, most {:?} from commit to arrival", at(99), at(100));
    assert_eq!(rig.db().await.count("sent_at is null").await, 0);
}
