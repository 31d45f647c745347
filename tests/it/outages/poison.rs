//! A row that never gets an answer, or that the broker refuses without naming it, does not hold up the good ones.

use crate::support::between::{Between, Tables, counter};
use crate::support::consumer::{Consumer, Inspector};
use crate::support::db::{Db, Row};
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::types::FieldTable;

/// Rows name their queue by its key.
const BY_ROW: Tables<'_> = Tables {
    relay: "batch_deadline = \"1s\"",
    outbox: "",
    postgres: "",
    tiers: "[tier.now]\ntarget = { exchange = \"amq.topic\" }\n[tier.other]\ntarget = { queue = \"other\" }\n",
};

/// Stops a queue's process, or lets it go on: what is published to it meanwhile is neither confirmed nor refused.
fn freeze(rig: &Rig, queue: &str, frozen: bool) {
    let call = if frozen { "suspend" } else { "resume" };
    rig.rabbit().eval(&format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"{}\">>, queue, <<\"{queue}\">>)),
        sys:{call}(amqqueue:get_pid(Q))",
        rig.name()
    ));
}

async fn insert(db: &Db, key: &str, n: i32) {
    const INSERT: &str = "insert into duebox.outbox (tier, routing_key, payload) \
        select 'now', $1::text, '{}' from generate_series(1, $2::int)";
    db.execute(INSERT, &[&key, &n]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_never_gets_an_answer_does_not_hold_up_the_others() {
    let between = Between::new(Rig::new("no_answer"));
    let inspector = Inspector::connect(&between.rig.amqp_url()).await;
    for queue in ["good", "mute"] {
        inspector.declare_queue(queue, FieldTable::default()).await;
        inspector.bind(queue, "amq.topic", queue).await;
    }
    let daemon = between.start(BY_ROW);
    let db = between.rig.db().await;
    freeze(&between.rig, "mute", true);
    // In one batch, the bad one first.
    let mixed = "insert into duebox.outbox (tier, routing_key, payload) \
        select 'now', case i when 1 then 'mute' else 'good' end, '{}' from generate_series(1, 200) as i";
    db.execute(mixed, &[]).await.unwrap();
    // Others get their confirms all the time: it is not the connection.
    let good = "id <= 200 and routing_key = 'good' and sent_at is not null";
    let begun = std::time::Instant::now();
    wait_until(secs(30), async || {
        db.insert(&Row::new("other")).await;
        insert(&db, "good", 1).await;
        db.count(good).await == 199
    })
    .await;
    let took = begun.elapsed();
    // It is blamed only while others of its tier get through.
    wait_until(secs(30), async || {
        insert(&db, "good", 1).await;
        db.count("routing_key = 'mute' and attempts > 0").await == 1
    })
    .await;
    let blamed = begun.elapsed();
    assert_eq!(db.count("routing_key = 'mute' and sent_at is not null").await, 0);
    let late = "tier = 'other' and coalesce(sent_at, now()) > created_at + interval '2 s'";
    assert_eq!(db.count(late).await, 0, "another tier never notices");
    assert_eq!(db.count("routing_key = 'good' and attempts > 0").await, 0);
    assert!(counter(&daemon, "unknown", "now") > 0.0);
    freeze(&between.rig, "mute", false);
    wait_until(secs(30), async || db.count("sent_at is null").await == 0).await;
    let mut mute = Consumer::new(&between.rig.amqp_url(), "mute").await;
    assert!(mute.next(secs(5)).await.is_some());
    eprintln!("a mute row: the good ones passed within {took:?}, it was blamed after {blamed:?}");
}
