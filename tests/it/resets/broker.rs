//! The connection to RabbitMQ is reset under the relay.

use super::{Use, rounds};
use crate::support::between::{Between, Tables};
use crate::support::oracle::Oracle;
use crate::support::proxy::Mode;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

const TIERS: &[(&str, &str)] = &[("now", "due")];
/// One for each worker; what the topology check uses is closed after each step.
const CHANNELS: usize = 4;

/// Connections of the test's vhost, and their channels.
fn on_the_broker(rig: &Rig) -> (usize, usize) {
    let name = rig.name();
    let count = |of: &str| rig.rabbit().eval(of).trim().parse().unwrap();
    (
        count(&format!("length([c || [{{vhost, <<\"{name}\">>}}] <- rabbit_networking:connection_info_all([vhost])])")),
        count(&format!("length([c || [{{vhost, <<\"{name}\">>}}] <- rabbit_channel:info_all([vhost])])")),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reset_of_the_brokers_connection_is_made_good_and_leaves_nothing_behind() {
    let between = Between::new(Rig::new("resets"));
    let daemon = between.start(Tables::default());
    let db = between.rig.db().await;
    let (rounds, begun) = (rounds(60), std::time::Instant::now());
    let mut before = Use::of(&daemon);
    for round in 1..=rounds {
        between.rabbit.set(Mode::Reset);
        wait_until(secs(10), async || between.rabbit.connections() == 0).await;
        between.rabbit.set(Mode::Pass);
        // Confirmed over the new connection: the next reset comes after it has worked.
        db.insert_rows("now", 20).await;
        wait_until(secs(30), async || db.count("sent_at is null").await == 0).await;
        if round == rounds.div_ceil(10) {
            before = Use::of(&daemon);
        }
        if round % 100 == 0 {
            eprintln!("after {round} resets: {}", Use::of(&daemon));
        }
    }
    let took = begun.elapsed();
    wait_until(secs(30), async || on_the_broker(&between.rig) == (1, CHANNELS)).await;
    let after = Use::of(&daemon);
    eprintln!("{rounds} resets of the broker's connection in {took:?}: {before}, then {after}");
    after.assert_flat_since(&before);
    let reconnects = daemon.metric("duebox_reconnects_total{side=\"rabbitmq\"}").unwrap();
    assert!(reconnects >= rounds as f64, "{reconnects} of {rounds}");
    daemon.wait_ready(secs(10));
    let mut oracle = Oracle::new(&between.rig, TIERS);
    let copies = oracle.duplicates(&db).await;
    assert_eq!(copies, 0, "nothing was in flight at any reset");
}

#[tokio::test(flavor = "multi_thread")]
async fn connects_that_nobody_answers_leave_nothing_behind() {
    let between = Between::new(Rig::new("unanswered"));
    between.rabbit.set(Mode::FreezeAccept);
    let daemon = between.launch(Tables::default());
    let tried = async |times| wait_until(secs(60), async || between.rabbit.accepted() > times).await;
    // Given up each time after 2 s; the client library would wait for ever, in a thread of its own.
    tried(1).await;
    let before = Use::of(&daemon);
    tried(6).await;
    let after = Use::of(&daemon);
    eprintln!("5 connects without an answer: {before}, then {after}");
    after.assert_flat_since(&before);
}
