//! A producer that saw a relay awake, and so did not ring, commits when that relay has gone to sleep: the row leaves at
//! once all the same. Each of these waits an hour when the way to sleep does not wait for open transactions.

use super::{AT_ONCE, Awake, Sleeper, asleep, pid, waits_for};
use crate::support::db::Db;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{millis, secs, wait_until};
use std::time::{Duration, Instant};

const INSERT: &str = "insert into duebox.outbox (tier, key, payload) values ('now', 'late', '{}')";

/// Runs `statements` in an open transaction while a relay is awake, commits when the relay is on its way to sleep, and
/// says how long the row took from there.
async fn skipped(sleeper: &mut Sleeper, work: impl AsyncFnOnce(&Db)) -> Duration {
    let awake = Awake::new(&sleeper.rig).await;
    // A superuser, for its COPY from a program.
    let producer = sleeper.rig.db_as("postgres").await;
    producer.batch_execute("begin").await.unwrap();
    work(&producer).await;
    awake.ends().await;
    sleeper.wakes_and_waits_for(&[&producer]).await;
    producer.batch_execute("commit").await.unwrap();
    let committed = Instant::now();
    let late = sleeper.due.next(AT_ONCE).await.expect("the row of the transaction that was open leaves");
    assert_eq!(late.headers["x-duebox-key"], "late");
    asleep(&sleeper.daemon);
    assert_eq!(waits_for(&sleeper.daemon), [0; 0]);
    committed.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_a_savepoint_and_a_copy_that_did_not_ring_leave_at_their_commit() {
    let mut sleeper = Sleeper::new("skipped").await;
    let plain = skipped(&mut sleeper, async |db| db.batch_execute(INSERT).await.unwrap()).await;
    let savepoint = skipped(&mut sleeper, async |db| {
        // What is rolled back gives its lock back; what was inserted before keeps the transaction waited for.
        let rolled_back = INSERT.replace("'late'", "'rolled back'");
        db.batch_execute(&format!("{INSERT}; savepoint s; {rolled_back}; rollback to s")).await.unwrap();
    })
    .await;
    let released = skipped(&mut sleeper, async |db| {
        db.batch_execute(&format!("savepoint s; {INSERT}; release s")).await.unwrap();
    })
    .await;
    let copy = skipped(&mut sleeper, async |db| {
        let copy = r#"copy duebox.outbox (tier, key, payload) from program 'printf "now\tlate\t{}\n"'"#;
        db.batch_execute(copy).await.unwrap();
    })
    .await;
    eprintln!("until sent: plain {plain:?}, savepoint {savepoint:?}, released {released:?}, copy {copy:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_after_a_rollback_to_its_savepoint_rings_by_itself() {
    let mut sleeper = Sleeper::new("savepoint").await;
    let awake = Awake::new(&sleeper.rig).await;
    let producer = sleeper.rig.db().await;
    // The lock on the table went with the savepoint: nothing shows that this transaction may insert again.
    producer.batch_execute(&format!("begin; savepoint s; {INSERT}; rollback to s")).await.unwrap();
    awake.ends().await;
    sleeper.one_row().await;
    producer.batch_execute(&format!("{INSERT}; commit")).await.unwrap();
    sleeper.due.next(AT_ONCE).await.expect("it found K free, and rang");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stays_open_for_seconds_is_waited_for_gently() {
    let rig = Rig::private("patient", Own::Postgres);
    rig.postgres().log_statements();
    let mut sleeper = Sleeper::on(rig).await;
    let producer = sleeper.skips(INSERT).await;
    sleeper.wakes_and_waits_for(&[&producer]).await;
    // After some hundred looks they come four a second, where they came a hundred: each look is a few statements.
    wait_until(secs(30), async || {
        let before = sleeper.rig.postgres().statements_of_relays();
        producer.batch_execute("select pg_sleep(2)").await.unwrap();
        sleeper.rig.postgres().statements_of_relays() - before < 100
    })
    .await;
    // New rows leave at once meanwhile, for their producers ring.
    sleeper.wakes_and_waits_for(&[&producer]).await;
    producer.batch_execute("commit").await.unwrap();
    sleeper.due.next(AT_ONCE).await.expect("the row of the transaction that was open leaves");
    asleep(&sleeper.daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_elsewhere_and_of_others_tables_do_not_keep_it_awake() {
    let mut sleeper = Sleeper::new("elsewhere").await;
    let other = Rig::new("elsewhere_too");
    other.migrate(&[]);
    let elsewhere = other.db().await;
    elsewhere.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
    let reader = sleeper.rig.db().await;
    reader.batch_execute("begin isolation level repeatable read; select count(*) from duebox.outbox").await.unwrap();
    let writer = sleeper.rig.db().await;
    writer.batch_execute("create table orders (id int); begin; insert into orders values (1)").await.unwrap();
    sleeper.one_row().await;
    drop((elsewhere, reader, writer));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_rolled_back_or_killed_lets_it_sleep() {
    let mut sleeper = Sleeper::new("given_up").await;
    let awake = Awake::new(&sleeper.rig).await;
    let (rolled_back, killed) = (sleeper.rig.db().await, sleeper.rig.db().await);
    for producer in [&rolled_back, &killed] {
        producer.batch_execute(&format!("begin; {INSERT}")).await.unwrap();
    }
    awake.ends().await;
    sleeper.wakes_and_waits_for(&[&rolled_back, &killed]).await;
    rolled_back.batch_execute("rollback").await.unwrap();
    let pid = pid(&killed).await;
    sleeper.db.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    asleep(&sleeper.daemon);
    assert!(sleeper.due.next(millis(100)).await.is_none());
}
