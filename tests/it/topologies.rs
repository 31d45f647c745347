//! Exchanges and queues that are the user's: they are used as they are, and nothing is made or changed.

mod broken;
mod documented;
mod walked;

use crate::support::consumer::Inspector;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{eventually, secs, wait_until};
use lapin::ExchangeKind;
use lapin::types::{AMQPValue, FieldTable};

const SOON: std::time::Duration = secs(15);

/// A relay that looks for a topology every 200 ms and does not make one.
fn base(rig: &Rig, role: &str, topology: &str) -> Base {
    Base { rabbitmq: format!("topology = \"{topology}\"\ntopology_check = \"200ms\"\n"), ..rig.relay_base(role) }
}

/// The arguments of a classic delay queue as an application declares it.
fn delaying(millis: i64, exchange: &str, key: &str) -> FieldTable {
    let mut table = FieldTable::default();
    table.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
    table.insert("x-dead-letter-exchange".into(), AMQPValue::LongString(exchange.into()));
    table.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(key.into()));
    table
}

/// Takes a user's rights to declare and to read.
fn may_only_write(rig: &Rig) {
    let name = rig.name();
    rig.rabbit().eval(&format!(
        r#"rabbit_auth_backend_internal:set_permissions(
            <<"{name}">>, <<"{name}">>, <<"^$">>, <<".*">>, <<"^$">>, <<"rig">>)"#
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn verified_topology_is_named_while_it_is_missing_used_when_it_is_there_and_never_made() {
    let rig = Rig::new("verify");
    let role = rig.migrated();
    let tiers = "[tier.t]\ndelay = \"1s\"\nexchange = \"in\"\nrouting_key = \"k\"\nqueue = \"mine\"\n\
                 target = { exchange = \"out\", routing_key = \"d\", queue = \"due\" }\n";
    let daemon = Daemon::start(&rig, &format!("{}{tiers}", base(&rig, &role, "verify").render()));
    let names =
        ["exchange 'out' is missing", "queue 'due' is missing", "queue 'mine' is missing", "exchange 'in' is missing"];
    eventually("all that is missing is named", START, || {
        daemon.get("/readyz").is_some_and(|(code, said)| {
            println!("{code} {said}");
            code == 503 && names.iter().all(|name| said.contains(name))
        })
    });
    let (_, said, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
    for name in ["exchange 'out' is", "queue 'due' is", "queue 'mine' is", "exchange 'in' in front"] {
        assert!(said.contains(name), "{name} in\n{said}");
    }
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    for queue in ["due", "mine"] {
        assert_eq!(inspector.depth(queue).await, None, "{queue} is not ours to make");
    }
    inspector.declare_exchange("in", ExchangeKind::Direct).await;
    inspector.declare_exchange("out", ExchangeKind::Direct).await;
    inspector.declare_queue("due", FieldTable::default()).await;
    inspector.declare_queue("mine", delaying(1_000, "out", "d")).await;
    daemon.wait_ready(SOON);
    // Nothing is bound yet, and that is not ours to do either.
    let db = rig.db().await;
    db.insert(&Row::new("t")).await;
    daemon.wait_unready(SOON);
    assert_eq!(db.count("sent_at is not null").await, 0);
    inspector.bind("mine", "in", "k").await;
    inspector.bind("due", "out", "d").await;
    wait_until(secs(30), async || inspector.depth("due").await == Some(1)).await;
    daemon.wait_ready(SOON);
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_queue_of_theirs_with_another_delay_is_refused_at_start_with_both() {
    let rig = Rig::new("verify_ttl");
    let role = rig.migrated();
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    inspector.declare_queue("due", FieldTable::default()).await;
    inspector.declare_queue("mine", delaying(900_000, "", "due")).await;
    let tiers = "[tier.t]\ndelay = \"30m\"\nqueue = \"mine\"\ntarget = { queue = \"due\" }\n";
    let mut daemon = Daemon::start(&rig, &format!("{}{tiers}", base(&rig, &role, "verify").render()));
    assert_eq!(daemon.wait_exit(START), 78);
    let log = daemon.log();
    for text in ["'mine'", "1800000", "900000", "`delay`"] {
        assert!(log.contains(text), "{text} in\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_only_write_relays_through_what_is_there() {
    for topology in ["verify", "off"] {
        let rig = Rig::new(&format!("write_only_{topology}"));
        let role = rig.migrated();
        let inspector = Inspector::connect(&rig.amqp_url()).await;
        inspector.declare_queue("due", FieldTable::default()).await;
        inspector.declare_queue("mine", delaying(1_000, "", "due")).await;
        may_only_write(&rig);
        let tiers = "[tier.t]\ndelay = \"1s\"\nqueue = \"mine\"\ntarget = { queue = \"due\" }\n";
        let daemon = Daemon::start(&rig, &format!("{}{tiers}", base(&rig, &role, topology).render()));
        daemon.wait_ready(START);
        let db = rig.db().await;
        db.insert(&Row::new("t")).await;
        wait_until(SOON, async || db.count("sent_at is not null").await == 1).await;
        wait_until(SOON, async || inspector.depth("due").await == Some(1)).await;
        let told = daemon.log().matches("the arguments of delay queue 'mine' were not compared").count();
        assert_eq!(told, usize::from(topology == "verify"), "{}", daemon.log());
        let problems = daemon.log().lines().filter(|line| line.contains("ERROR")).count();
        assert_eq!(problems, 0, "{}", daemon.log());
    }
}
