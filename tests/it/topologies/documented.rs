//! The set-ups of docs/topologies.md, with the files that stand there.

use super::{SOON, base, delaying};
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::wait_until;
use lapin::ExchangeKind;
use lapin::types::FieldTable;

const PAGE: &str = include_str!("../../../docs/topologies.md");

/// Starts a daemon with the file under that heading; minutes are tenths of seconds.
fn relay(rig: &Rig, name: &str) -> Daemon {
    let (_, rest) = PAGE.split_once(&format!("```toml {name}\n")).expect("the page has it");
    let (file, _) = rest.split_once("```").expect("it ends");
    let file = file.replace("\"30m\"", "\"3s\"").replace("\"25m\"", "\"2500ms\"").replace("\"10m\"", "\"1s\"");
    let role = rig.migrated();
    let (opening, tiers) = match file.strip_prefix("[rabbitmq]\ntopology = \"verify\"\n") {
        Some(tiers) => (base(rig, &role, "verify"), tiers),
        None => (rig.relay_base(&role), file.as_str()),
    };
    let daemon = Daemon::start(rig, &format!("{}{tiers}", Base::render(&opening)));
    daemon.wait_ready(START);
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usual_pair_of_exchanges_is_used_as_the_application_declared_it() {
    let rig = Rig::new("spring");
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    for (exchange, queue, key, arguments) in [
        (
            "order.delay.exchange",
            "order.delay.queue",
            "order.delay",
            delaying(3_000, "order.dead.exchange", "order.dead"),
        ),
        ("order.dead.exchange", "order.dead.queue", "order.dead", FieldTable::default()),
    ] {
        inspector.declare_exchange(exchange, ExchangeKind::Direct).await;
        inspector.declare_queue(queue, arguments).await;
        inspector.bind(queue, exchange, key).await;
    }
    let daemon = relay(&rig, "spring");
    let mut listener = Consumer::new(&rig.amqp_url(), "order.dead.queue").await;
    rig.db().await.insert(&Row::new("order-30m").key("order-1")).await;
    let delivery = listener.next(SOON).await.expect("it arrives");
    assert_eq!(delivery.headers["x-duebox-key"], "order-1");
    assert_eq!((delivery.exchange.as_str(), delivery.routing_key.as_str()), ("order.dead.exchange", "order.dead"));
    assert_eq!(delivery.headers["x-first-death-queue"], "order.delay.queue", "through their delay queue");
    let told = "select count(*) from duebox.state where name like 'queue.%'";
    assert_eq!(rig.db().await.query_one(told, &[]).await.unwrap().get::<_, i64>(0), 0, "theirs are nobody's to delete");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tiers_end_in_one_queue_in_the_order_of_their_delays() {
    let rig = Rig::new("three_tiers");
    let daemon = relay(&rig, "three");
    let db = rig.db().await;
    let mut due = Consumer::new(&rig.amqp_url(), "order.due").await;
    for tier in ["close", "warn", "remind"] {
        db.insert(&Row::new(tier)).await;
    }
    for tier in ["remind", "warn", "close"] {
        assert_eq!(due.next(SOON).await.expect(tier).headers["x-duebox-tier"], tier);
    }
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_choose_their_key_on_a_topic_exchange_at_once_and_later() {
    let rig = Rig::new("topic");
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    inspector.declare_exchange("shop.events", ExchangeKind::Topic).await;
    inspector.declare_queue("mail", quorum()).await;
    inspector.bind("mail", "shop.events", "order.*.paid").await;
    let daemon = relay(&rig, "topic");
    let db = rig.db().await;
    let key = |key: &str| Some(key.to_owned());
    db.insert(&Row { routing_key: key("order.eu.paid"), due_in: Some(1.5), ..Row::new("scheduled").key("later") })
        .await;
    db.insert(&Row { routing_key: key("order.us.paid"), ..Row::new("events").key("now") }).await;
    db.insert(&Row { routing_key: key("order.us.lost"), ..Row::new("events").key("nobody's") }).await;
    let mut mail = Consumer::new(&rig.amqp_url(), "mail").await;
    for key in ["now", "later"] {
        assert_eq!(mail.next(SOON).await.expect(key).headers["x-duebox-key"], key);
    }
    wait_until(SOON, async || db.count("key = 'nobody''s' and sent_at is null and attempts > 0").await == 1).await;
    drop(daemon);
}
