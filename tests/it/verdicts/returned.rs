//! A message that no queue takes comes back: it is never marked sent, it is counted, and at last it is parked.

use super::{arrivals, repeated, shop};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

/// Rows bring their own keys.
const EVENTS: &str = "[tier.events]\ntarget = { exchange = \"shop\" }\n";
/// How long 5,000 rows may take on a machine under load.
const LONG: std::time::Duration = secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn every_seventh_of_5000_rows_is_unroutable_and_exactly_those_are_not_sent() {
    let rig = Rig::new("seventh");
    let broker = shop(&rig, &["good"]).await;
    let role = rig.migrated();
    let db = rig.db().await;
    // Before the daemon starts, so that it claims 50 full batches.
    let insert = "insert into duebox.outbox (tier, routing_key, payload) \
        select 'events', case when i % 7 = 0 then 'nowhere' else 'good' end, '{}' from generate_series(1, 5000) i";
    db.execute(insert, &[]).await.unwrap();
    // No second attempt by itself, so that the counts stand still.
    let pace = "[relay]\nbatch_rows = 100\nbackoff_min = \"10m\"\nbackoff_max = \"10m\"\n";
    let daemon = rig.daemon(&role, &format!("{pace}{EVENTS}"));
    daemon.wait_ready(START);
    let returned = || daemon.metric("duebox_returned_total{tier=\"events\"}");

    wait_until(LONG, async || db.count("sent_at is null and attempts = 0").await == 0).await;
    let unsent = "sent_at is null and parked_at is null and routing_key = 'nowhere'";
    assert_eq!(db.count(&format!("{unsent} and attempts = 1 and last_error like '%NO_ROUTE%'")).await, 714);
    assert_eq!(db.count("sent_at is not null and attempts = 0 and routing_key = 'good'").await, 4286);
    wait_until(secs(5), async || returned() == Some(714.0)).await;

    db.execute("update duebox.outbox set available_at = now() where sent_at is null", &[]).await.unwrap();
    db.execute("select duebox.ring()", &[]).await.unwrap();
    wait_until(LONG, async || db.count(&format!("{unsent} and attempts = 2")).await == 714).await;
    wait_until(secs(5), async || returned() == Some(1428.0)).await;
    assert_eq!(daemon.metric("duebox_confirmed_total{tier=\"events\"}"), Some(4286.0));

    let came = arrivals(&broker, "good", 4286, LONG).await;
    assert_eq!((came.len(), repeated(&came)), (4286, 0));
    let sent = db.query("select message_id::text from duebox.outbox where sent_at is not null", &[]).await.unwrap();
    assert!(sent.iter().all(|row| came.contains_key(row.get::<_, &str>(0))), "what is marked sent has arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_way_is_parked_at_its_last_attempt_and_goes_out_once_requeued() {
    let rig = Rig::new("lastattempt");
    let broker = shop(&rig, &["good"]).await;
    let pace = "[relay]\nmax_attempts = 3\nbackoff_min = \"50ms\"\nbackoff_max = \"100ms\"\n";
    let daemon = rig.relay(&format!("{pace}{EVENTS}"));
    let db = rig.db().await;
    let insert = "insert into duebox.outbox (tier, routing_key, payload) values ('events', 'later', '{}') \
        returning message_id::text";
    let message_id: String = db.query_one(insert, &[]).await.unwrap().get(0);
    wait_until(secs(10), async || db.count("parked_at is not null").await == 1).await;
    let reason: String = db.query_one("select last_error from duebox.outbox", &[]).await.unwrap().get(0);
    for part in ["312 NO_ROUTE", "nothing is bound to exchange 'shop' with key 'later'", "attempt 3, the last"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(db.count("attempts = 3 and sent_at is null").await, 1);
    wait_until(secs(5), async || daemon.metric("duebox_parked_total{tier=\"events\"}") == Some(1.0)).await;
    assert_eq!(daemon.metric("duebox_returned_total{tier=\"events\"}"), Some(3.0));
    daemon.wait_log(&message_id, secs(5));

    broker.declare_queue("later", crate::support::consumer::quorum()).await;
    broker.bind("later", "shop", "later").await;
    // Looked at before the commit, while no relay can see it.
    db.batch_execute("begin").await.unwrap();
    let requeued = db.query_one("select duebox.requeue($1::text::uuid)", &[&message_id]).await.unwrap();
    assert!(requeued.get::<_, bool>(0));
    assert_eq!(db.count("parked_at is null and attempts = 0 and available_at <= now()").await, 1);
    db.batch_execute("commit").await.unwrap();
    let came = arrivals(&broker, "later", 1, secs(10)).await;
    assert_eq!(came.keys().collect::<Vec<_>>(), [&message_id]);
    wait_until(secs(5), async || db.count("sent_at is not null and attempts = 0").await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_batches_of_poison_with_the_lowest_ids_do_not_hold_up_the_good_rows_behind_them() {
    let rig = Rig::new("poison");
    let broker = shop(&rig, &["good"]).await;
    let pace = "[relay]\nworkers = 1\nbatch_rows = 50\nmax_attempts = 2\nbackoff_min = \"3s\"\n";
    let daemon = rig.relay(&format!("{pace}{EVENTS}"));
    let db = rig.db().await;
    let insert = "insert into duebox.outbox (tier, routing_key, payload) \
        select 'events', case when i <= 100 then 'nowhere' else 'good' end, '{}' from generate_series(1, 200) i";
    db.execute(insert, &[]).await.unwrap();
    let came = arrivals(&broker, "good", 100, secs(10)).await;
    assert_eq!(repeated(&came), 0);
    assert_eq!(db.count("routing_key = 'nowhere' and attempts = 1 and parked_at is null").await, 100);
    wait_until(secs(20), async || db.count("parked_at is not null and attempts = 2").await == 100).await;
    drop(daemon);
}
