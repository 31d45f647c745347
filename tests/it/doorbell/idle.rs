//! An idle outbox costs next to nothing. `benches/idle.sh` watches the release build for a minute.

use super::{NOW, asleep};
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_writes_nothing_and_asks_once_a_poll() {
    let span = secs(std::env::var("IDLE_SECONDS").map_or(21, |text| text.parse().unwrap()));
    let rig = Rig::private("idle", Own::Postgres);
    rig.postgres().sql("postgres", "alter system set autovacuum = off");
    // Without standbys the server does not write down by itself which transactions run.
    rig.postgres().sql("postgres", "alter system set wal_level = minimal");
    rig.postgres().sql("postgres", "alter system set max_wal_senders = 0");
    rig.postgres().log_statements();
    let daemon = rig.relay(NOW);
    asleep(&daemon);
    let db = rig.db_as("postgres").await;
    db.batch_execute("checkpoint").await.unwrap();
    // Of insertion: what was written into memory before this test looks reaches the disk in the middle of it.
    let insert = "select pg_current_wal_insert_lsn()::text";
    let lsn = async || -> String { db.query_one(insert, &[]).await.unwrap().get(0) };
    let statements = || rig.postgres().statements_of_relays();
    // The server tidies up a page of its catalog now and then, after what the migration changed there.
    let mut settled = lsn().await;
    wait_until(secs(60), async || {
        let before = std::mem::replace(&mut settled, lsn().await);
        db.batch_execute("select pg_sleep(3)").await.unwrap();
        before == settled
    })
    .await;
    let (cpu, asked, wal) = (daemon.cpu(), statements(), lsn().await);
    // Not a wait for something: the span over which nothing may happen.
    tokio::time::sleep(span).await;
    let (cpu, asked, after) = (daemon.cpu() - cpu, statements() - asked, lsn().await);
    eprintln!("idle for {span:?}: {asked} statements, {cpu:?} of CPU, VmHWM {} kB", daemon.vm_hwm_kib());
    assert_eq!(wal, after, "an idle relay writes no WAL");
    // Every 5 s a look, one transaction on one round trip (begin, look, commit), and every minute one for tiers that nobody
    // claims; every 10 s the touch of the listener.
    // On a busy machine the span is longer than it says, by a look at most.
    let every = |seconds| usize::try_from(span.as_secs().div_ceil(seconds)).unwrap() + 1;
    assert!(
        asked <= (every(5) + every(60)) * 3 + every(10),
        "{asked} statements in {span:?}:\n{}",
        rig.postgres().log()
    );
    assert!(cpu < span / 20, "{cpu:?} of CPU in {span:?}");
    assert!(daemon.vm_hwm_kib() < 60 * 1024, "{} kB, in a debug build", daemon.vm_hwm_kib());
    assert!(daemon.log().lines().count() < 60, "nothing to say while nothing happens:\n{}", daemon.log());
}
