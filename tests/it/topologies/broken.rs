//! What the broker does to a delay queue under a running relay.

use super::SOON;
use crate::support::between::{Between, Tables, WINDOW, counter};
use crate::support::consumer::Consumer;
use crate::support::daemon::Daemon;
use crate::support::oracle::Oracle;
use crate::support::relay::START;
use crate::support::rig::{Base, Own, Rig};
use crate::support::wait::{secs, wait_until};
use std::time::SystemTime;

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_deletes_unused_queues_is_told_as_the_delay_queue_vanishes() {
    let rig = Rig::new("expires");
    let name = rig.name();
    rig.rabbit().eval(&format!(
        r#"rabbit_policy:set(<<"{name}">>, <<"replies">>, <<".*">>, [{{<<"expires">>, 500}}], 0, <<"queues">>, <<"rig">>)"#
    ));
    let role = rig.migrated();
    // Rarer than the queue lives: each look counts as use.
    let base = Base { rabbitmq: "topology_check = \"2s\"\n".to_owned(), ..rig.relay_base(&role) };
    let tiers = "[tier.t]\ndelay = \"60s\"\ntarget = { queue = \"due\" }\n";
    let daemon = Daemon::start(&rig, &format!("{}{tiers}", base.render()));
    daemon.wait_ready(START);
    rig.db().await.insert_rows("t", 1).await;
    let line = daemon.wait_log("delay queue 'duebox.t.60000", secs(20));
    assert!(line.contains("ERROR") && line.contains("vanished") && line.contains("`expires`"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_a_delay_queue_outlive_a_restart_of_the_broker() {
    let rig = Rig::private("durable", Own::Rabbit);
    let daemon = rig.relay("[tier.t]\ndelay = \"12s\"\ntarget = { queue = \"due\" }\n");
    let db = rig.db().await;
    db.insert_rows("t", 100).await;
    wait_until(SOON, async || db.count("sent_at is not null").await == 100).await;
    rig.rabbit().sync();
    rig.rabbit().restart();
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    for n in 0..100 {
        let delivery = due.next(secs(30)).await.unwrap_or_else(|| panic!("{n} of 100 arrived"));
        assert_eq!(delivery.properties.delivery_mode(), &Some(2));
    }
    assert!(due.next(secs(0)).await.is_none(), "once each");
    daemon.wait_ready(START);
}

/// Freezes the members of a quorum queue, or lets them go on: as without a quorum, it takes and confirms nothing.
fn members(rig: &Rig, queue: &str, what: &str) {
    let name = rig.name();
    let done = rig.rabbit().eval(&format!(
        r#"{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{name}">>, queue, <<"{queue}">>}}), sys:{what}(amqqueue:get_pid(Q))"#
    ));
    assert_eq!(done, "ok", "{what} the members of {queue}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_without_a_quorum_gets_no_more_than_the_windows_of_its_retries() {
    let between = Between::new(Rig::new("no_quorum"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    members(&between.rig, "due", "suspend");
    db.insert_rows("now", 1_000).await;
    // Twice: from then on the tier goes in smaller batches, and six deadlines later in very small ones.
    wait_until(secs(30), async || counter(&daemon, "unknown", "now") >= 100.0).await;
    let since: SystemTime = db.query_one("select now()", &[]).await.unwrap().get(0);
    let later = "select now() > $1::timestamptz + interval '14 s'";
    wait_until(secs(30), async || db.query_one(later, &[&since]).await.unwrap().get::<_, bool>(0)).await;
    assert_eq!(db.count("sent_at is not null or attempts > 0").await, 0, "nothing is confirmed, and no row is blamed");
    let published = counter(&daemon, "published", "now");
    members(&between.rig, "due", "resume");
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    oracle.settled(&db).await;
    let duplicates = oracle.duplicates(&db).await;
    println!("{published} published without a quorum, {duplicates} copies");
    assert!(published <= 3.0 * WINDOW as f64, "{published} were published, and each may be a copy");
    assert!(duplicates <= 3 * WINDOW, "{duplicates}");
    assert_eq!(db.count("attempts > 0 or parked_at is not null").await, 0);
    daemon.wait_ready(secs(30));
}
