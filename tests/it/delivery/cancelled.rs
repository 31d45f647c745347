//! Cancelling against a relay that is taking the same rows, and after an attempt whose outcome nobody knows.

use super::SOON;
use crate::support::between::{Between, Tables, counter};
use crate::support::consumer::{Consumer, Inspector};
use crate::support::db::Db;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use uuid::Uuid;

const ROWS: i64 = 200;

/// Due over two seconds, from three seconds on.
const HELD: &str = "insert into duebox.outbox (tier, key, payload, due_at) \
    select 'later', i::text, '{}', now() + interval '3 s' + i * interval '10 ms' from generate_series(1, $1::bigint) i";

/// What each cancel answered. Each row is cancelled so long before or after it is due, in milliseconds by the server's
/// clock: a relay that claims it at its due time is before that, in the middle, or behind it.
async fn cancel(db: &Db, remainder: i64, shift: i64) -> Vec<(Uuid, bool)> {
    let rows = "select message_id from duebox.outbox where id % 4 = $1 order by due_at";
    let wait = "select pg_sleep_until(due_at + $2::float8 * interval '1 ms') from duebox.outbox where message_id = $1";
    let mut answers = Vec::new();
    for row in db.query(rows, &[&remainder]).await.unwrap() {
        let id: Uuid = row.get(0);
        db.execute(wait, &[&id, &(shift as f64)]).await.unwrap();
        answers.push((id, db.query_one("select duebox.cancel($1)", &[&id]).await.unwrap().get(0)));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_either_cancelled_or_arrives_however_close_the_relay_is() {
    let rig = Rig::new("cancel_race");
    let daemon = rig.relay("[tier.later]\nkind = \"hold\"\ntarget = { queue = \"due\" }\n");
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    db.execute(HELD, &[&ROWS]).await.unwrap();
    let sessions = [rig.db().await, rig.db().await, rig.db().await, rig.db().await];
    let racing = sessions.iter().zip([-100, 0, 2, 300]).zip(0_i64..);
    let answers = join_all(racing.map(|((db, shift), remainder)| cancel(db, remainder, shift))).await.concat();
    wait_until(SOON, async || db.count("sent_at is null and cancelled_at is null").await == 0).await;
    let arrived = due.drain_fast().await;
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in arrived {
        *copies.entry(delivery.message_id).or_default() += 1;
    }
    for (id, cancelled) in &answers {
        let came = copies.get(&id.to_string()).copied().unwrap_or(0);
        assert_eq!(came, usize::from(!cancelled), "{id}: cancelled {cancelled}, came {came} times");
    }
    let cancelled = answers.iter().filter(|(_, cancelled)| *cancelled).count();
    println!("{cancelled} of {} were cancelled", answers.len());
    assert_eq!(answers.len() as i64, ROWS);
    assert!(cancelled > 0 && cancelled < answers.len(), "{cancelled}: one side was always first");
    assert_eq!(db.count("(sent_at is null) = (cancelled_at is null)").await, 0, "one of the two, never both");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_attempt_had_no_outcome_is_cancelled_and_not_published_again() {
    let between = Between::new(Rig::new("cancel_unknown"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    let inspector = Inspector::connect(&between.rig.amqp_url()).await;
    between.rabbit.set(Mode::DropServerToClient);
    db.insert_rows("now", 1).await;
    let cancel = async || -> bool { db.query_one("select duebox.cancel('now', '1')", &[]).await.unwrap().get(0) };
    wait_until(SOON, async || inspector.depth("due").await == Some(1)).await;
    assert!(!cancel().await, "it is being published");
    wait_until(SOON, async || counter(&daemon, "unknown", "now") >= 1.0).await;
    // Given back: nobody knows that it arrived.
    wait_until(SOON, cancel).await;
    between.rabbit.set(Mode::Pass);
    daemon.wait_ready(secs(20));
    // What comes after it goes out, so it had its turn.
    db.insert_rows("now", 3).await;
    wait_until(SOON, async || db.count("sent_at is not null").await == 3).await;
    let came = inspector.drain("due").await;
    assert_eq!(came.len(), 4, "the copy of the attempt, and the three that came later");
    assert_eq!(db.count("cancelled_at is not null and sent_at is null and attempts = 0").await, 1);
}
