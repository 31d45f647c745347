//! The servers answer, each test has its own corner of them, and private ones die and come back.

use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::db::{Db, Row};
use crate::support::proxy::{Mode, Proxy};
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};
use std::time::SystemTime;

/// The columns that the helpers write; the real table comes from `duebox migrate`.
const OUTBOX: &str = "create schema duebox; create table duebox.outbox (id bigint generated always as identity, \
    message_id uuid default gen_random_uuid(), tier text, key text, type text, routing_key text, payload jsonb, \
    headers jsonb, due_at timestamptz, created_at timestamptz)";

#[tokio::test(flavor = "multi_thread")]
async fn each_rig_has_a_database_and_a_vhost_of_its_own() {
    let (one, two) = (Rig::new("corner"), Rig::new("corner"));
    assert_ne!(one.name(), two.name());
    for rig in [&one, &two] {
        let row = rig.db().await.query_one("select current_database()::text, current_user::text", &[]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (rig.name(), rig.name()));
        let broker = Inspector::connect(&rig.amqp_url()).await;
        assert_eq!(broker.depth("corner").await, None);
        broker.declare_queue("corner", quorum()).await;
        assert_eq!(broker.depth("corner").await, Some(0));
    }
    let listed = one.rabbit().ctl(&["list_queues", "-p", one.name(), "name"]);
    assert!(listed.contains("corner"), "{listed}");
    assert!(one.folder().is_dir() && one.postgres().pid().is_some() && one.rabbit().pid().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_with_a_password_must_show_it() {
    let rig = Rig::new("roles");
    let role = rig.create_role_with_password("relay", "right");
    let url = |password: &str| rig.postgres_url_as(&format!("{role}:{password}"));
    assert!(Db::connect(&url("wrong")).await.is_err());
    assert!(Db::connect(&url("right")).await.is_ok());
    let plain = rig.create_role("plain");
    assert!(rig.db_as(&plain).await.execute("create table t ()", &[]).await.is_err(), "a role without rights");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_in_and_are_counted() {
    let rig = Rig::new("rows");
    let db = rig.db().await;
    db.batch_execute(OUTBOX).await.unwrap();
    db.insert(&Row { due_in: Some(30.0), age: 2.0, ..Row::new("now").key("o-1") }).await;
    db.insert_rows("later", 10).await;
    wait_until(secs(5), async || db.count("tier = 'later'").await == 10).await;
    assert_eq!(db.count("due_at - created_at = interval '32 s' and key = 'o-1'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_sees_what_was_published() {
    let rig = Rig::new("consumer");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_queue("q", quorum()).await;
    broker.declare_exchange("x", ExchangeKind::Topic).await;
    broker.bind("q", "x", "order.#").await;
    let mut headers = FieldTable::default();
    headers.insert("attempt".into(), AMQPValue::LongLongInt(2));
    let properties = BasicProperties::default()
        .with_message_id("m-1".into())
        .with_type("order.created".into())
        .with_headers(headers);
    let before = SystemTime::now();
    broker.publish("x", "order.created", b"{}", properties).await;

    let mut consumer = Consumer::manual(&rig.amqp_url(), "q").await;
    let first = consumer.next(secs(10)).await.unwrap();
    assert_eq!((first.message_id.as_str(), first.kind.as_str()), ("m-1", "order.created"));
    assert_eq!((first.exchange.as_str(), first.routing_key.as_str()), ("x", "order.created"));
    assert_eq!(first.headers["attempt"], "2");
    assert!(first.properties.headers().is_some() && first.received >= before);
    consumer.requeue(&first).await;
    let second = consumer.next(secs(10)).await.unwrap();
    assert!(second.redelivered && second.text() == "{}" && second.at > first.at);
    consumer.ack(&second).await;

    consumer.close().await;
    broker.publish("", "q", b"2", BasicProperties::default()).await;
    assert_eq!(broker.drain("q").await.len(), 1);
    let mut consumer = Consumer::new(&rig.amqp_url(), "q").await;
    broker.publish("", "q", b"3", BasicProperties::default()).await;
    assert_eq!(consumer.next(secs(10)).await.unwrap().body, b"3");
    broker.delete_queue("q").await;
    assert_eq!(broker.depth("q").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_leads_through_a_proxy() {
    let rig = Rig::new("through");
    let proxy = Proxy::new(rig.postgres().port());
    let base = crate::support::rig::Base { postgres_port: proxy.port(), ..rig.base() };
    let text = base.render();
    let url = text.lines().find_map(|line| line.strip_prefix("url = ")).unwrap().trim_matches('"');
    assert!(Db::connect(url).await.is_ok());
    proxy.set(Mode::Reset);
    assert!(Db::connect(url).await.is_err());
    assert_ne!(rig.config(), rig.config(), "each has an admin port of its own");
}

#[test]
#[should_panic(expected = "serves every test")]
fn a_shared_server_is_not_stopped() {
    Rig::new("shared").postgres().stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn private_servers_die_and_come_back_with_their_data() {
    let rig = Rig::private("private", Own::Both);
    rig.db().await.batch_execute("create table kept as select 1 as one").await.unwrap();
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_queue("kept", quorum()).await;
    let lasting = || BasicProperties::default().with_delivery_mode(2);
    broker.publish("", "kept", b"1", lasting()).await;

    rig.rabbit().sync();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rig.postgres().kill9();
            assert_eq!(rig.postgres().pid(), None);
            rig.postgres().start();
            rig.postgres().restart();
        });
        rig.rabbit().kill9();
        assert_eq!(rig.rabbit().pid(), None);
        rig.rabbit().start();
    });

    assert!(rig.db().await.query_one("select one from kept", &[]).await.is_ok());
    let broker = Inspector::connect(&rig.amqp_url()).await;
    wait_until(secs(10), async || broker.depth("kept").await == Some(1)).await;
    rig.rabbit().restart();
}
