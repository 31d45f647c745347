//! Many rings and many relays: no flood of either is one of statements, and nothing piles up in the server.

use super::{AT_ONCE, NEVER, NOW, Sleeper, asleep};
use crate::support::consumer::Consumer;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_inserts_are_no_wake_up_of_every_relay_for_each() {
    const ROWS: usize = 1_000;
    let rig = Rig::private("crowd", Own::Postgres);
    rig.postgres().log_statements();
    let role = rig.migrated();
    let daemons = [(); 6].map(|()| rig.daemon(&role, NOW));
    for daemon in &daemons {
        daemon.wait_ready(START);
        asleep(daemon);
    }
    let db = rig.db().await;
    let before = rig.postgres().statements_of_relays();
    for _ in 0..ROWS {
        db.batch_execute("insert into duebox.outbox (tier, payload) values ('now', '{}')").await.unwrap();
    }
    wait_until(secs(20), async || db.count("sent_at is null").await == 0).await;
    for daemon in &daemons {
        asleep(daemon);
    }
    let asked = rig.postgres().statements_of_relays() - before;
    // 11 to 14 a row, which are a claim and a look or two; with a ring for each insert it was 24.
    assert!(asked < ROWS * 18, "{asked} statements for {ROWS} rows");
}

/// While a relay is awake nobody rings, for the rows of others neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_stays_awake_keeps_no_tier_of_others_waiting() {
    const ROWS: u32 = 150;
    let rig = Rig::new("beside");
    let role = rig.migrated();
    let other = "[tier.other]\ntarget = { queue = \"other\" }\n";
    let daemons = [NOW, other].map(|tier| rig.daemon(&role, &format!("{NEVER}{tier}")));
    for daemon in &daemons {
        daemon.wait_ready(START);
        asleep(daemon);
    }
    let (db, producer) = (rig.db().await, rig.db().await);
    let mut arrived = Consumer::new(&rig.amqp_url(), "other").await;
    let stream = tokio::spawn(async move {
        // Fast enough that the relay does not wait to be rung for.
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        loop {
            tick.tick().await;
            producer.insert_rows("now", 10).await;
        }
    });
    wait_until(secs(20), async || db.count("sent_at is not null").await > 1_000).await;
    let mut waits = Vec::new();
    for _ in 0..ROWS {
        let inserted = Instant::now();
        db.insert(&Row::new("other")).await;
        arrived.next(AT_ONCE).await.expect("it arrives");
        waits.push(inserted.elapsed());
    }
    stream.abort();
    // The first is found within a second and tells that more may come. Without that it was one in ten.
    let late = waits[1..].iter().filter(|wait| **wait > Duration::from_millis(500)).count();
    assert!(late <= 3, "{late} waited for half a second: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_notifications_is_drained_and_pins_nothing() {
    let mut sleeper = Sleeper::new("flood").await;
    let flood = "select count(pg_notify('duebox.outbox', g || repeat('x', 7000))) from generate_series(1, 500) g";
    for _ in 0..20 {
        sleeper.db.batch_execute(flood).await.unwrap();
    }
    let superuser = sleeper.rig.db_as("postgres").await;
    let clear = "select pg_notification_queue_usage() = 0 and not exists (select 1 from pg_stat_activity \
                 where application_name = 'duebox listen' and datname = current_database() \
                 and (backend_xmin is not null or wait_event = 'ClientWrite'))";
    wait_until(AT_ONCE * 2, async || superuser.query_one(clear, &[]).await.unwrap().get(0)).await;
    assert_eq!(sleeper.daemon.metric("duebox_notification_queue_usage"), Some(0.0));
    asleep(&sleeper.daemon);
    sleeper.one_row().await;
    assert!(sleeper.daemon.vm_hwm_kib() < 100 * 1024, "{} kB", sleeper.daemon.vm_hwm_kib());
}
