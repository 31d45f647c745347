//! `check --connect` walks each tier to its end, and `check --probe` sends a message of its own through it.

use super::{base, delaying};
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::run_cli;
use crate::support::rig::{Own, Rig};
use crate::support::run::free_port;
use crate::support::wait::{eventually, secs};
use lapin::ExchangeKind;
use lapin::types::{AMQPValue, FieldTable};

/// What `check` says, with the exit code.
fn check(rig: &Rig, role: &str, tiers: &str, rabbitmq: &str, how: &[&str]) -> (i32, String) {
    let mut opening = base(rig, role, "verify");
    opening.rabbitmq.push_str(rabbitmq);
    let path = rig.folder().join("check.toml");
    std::fs::write(&path, format!("{}{tiers}", opening.render())).unwrap();
    let (code, said, errors) = run_cli(&[&["check", "--config", path.to_str().unwrap()], how].concat());
    println!("{said}{errors}");
    (code, said)
}

/// Ten messages of a delay queue whose target has room for one or a few more.
async fn stuck(inspector: &Inspector) {
    let mut refusing = quorum();
    refusing.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let mut full = refusing.clone();
    full.insert("x-max-length".into(), AMQPValue::LongLongInt(1));
    inspector.declare_queue("full", full).await;
    let mut delay = delaying(100, "", "full");
    for (name, value) in refusing.inner() {
        delay.insert(name.clone(), value.clone());
    }
    delay.insert("x-dead-letter-strategy".into(), AMQPValue::LongString("at-least-once".into()));
    inspector.declare_queue("stuck", delay).await;
    for _ in 0..10 {
        inspector.publish("", "stuck", b"{}", lapin::BasicProperties::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_on_the_way_is_named_with_its_cure() {
    let rig = Rig::private("walked", Own::Rabbit);
    let port = free_port();
    rig.rabbit().manage(port);
    let name = rig.name();
    rig.rabbit().eval(&format!(
        r#"rabbit_auth_backend_internal:set_tags(<<"{name}">>, [monitoring, policymaker], <<"rig">>),
        rabbit_policy:set(<<"{name}">>, <<"bends">>, <<"^mine$">>, [{{<<"expires">>, 86400000}}, {{<<"message-ttl">>, 1000}}], 0, <<"queues">>, <<"rig">>),
        rabbit_policy:set(<<"{name}">>, <<"drops">>, <<"^due$">>, [{{<<"max-length">>, 7}}], 0, <<"queues">>, <<"rig">>),
        rabbit_policy:set(<<"{name}">>, <<"hides">>, <<"^in$">>, [{{<<"alternate-exchange">>, <<"catchall">>}}], 0, <<"exchanges">>, <<"rig">>)"#
    ));
    let inspector = Inspector::connect(&rig.amqp_url()).await;
    for exchange in ["in", "out", "events"] {
        inspector.declare_exchange(exchange, ExchangeKind::Direct).await;
    }
    inspector.declare_queue("due", FieldTable::default()).await;
    inspector.declare_queue("other", FieldTable::default()).await;
    inspector.declare_queue("mine", delaying(2_000, "out", "no such key")).await;
    inspector.bind("other", "in", "k").await;
    stuck(&inspector).await;
    let early = Consumer::manual(&rig.amqp_url(), "mine").await;
    let tiers = "[tier.t]\ndelay = \"2s\"\nexchange = \"in\"\nrouting_key = \"k\"\nqueue = \"mine\"\n\
                 target = { exchange = \"out\", routing_key = \"d\", queue = \"due\" }\n\
                 [tier.events]\ntarget = { exchange = \"events\" }\n\
                 [tier.s]\ndelay = \"100ms\"\nqueue = \"stuck\"\ntarget = { queue = \"full\" }\n";
    let url = format!("management_url = \"http://127.0.0.1:{port}\"\n");
    let role = rig.migrated();
    let mut said = String::new();
    // The API shows policies and consumers some seconds after the fact.
    eventually("the API tells of the policy", secs(40), || {
        let (code, text) = check(&rig, &role, tiers, &url, &["--connect"]);
        assert_eq!(code, 78);
        said = text;
        said.contains("policy 'bends'") && said.contains("policy 'drops'") && said.contains("cannot leave it")
    });
    for text in [
        "exchange 'in' with key 'k' leads to 'other' and not to queue 'mine'",
        "nothing is bound to exchange 'out' that takes key 'd'; bind queue 'due' with that key",
        "delay queue 'mine' dead-letters to exchange 'out' with key 'no such key', where nothing takes it",
        "policy 'bends' deletes delay queue 'mine' with its messages when it is unused for 86400000 ms",
        "policy 'bends' ends the delay in queue 'mine' after 1000 ms instead of 2000",
        "a consumer is on delay queue 'mine'",
        "exists with other arguments",
        "nothing is bound to exchange 'events'",
        "max-length of policy 'drops'",
        "exchange 'in' has the alternate exchange 'catchall'",
        "message(s) of delay queue 'stuck' are due and cannot leave it",
    ] {
        assert!(said.contains(text), "{text} in\n{said}");
    }
    early.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_goes_through_queues_of_its_own_and_leaves_none_behind() {
    let rig = Rig::new("probed");
    let tiers = "[tier.a]\ndelay = \"30m\"\ntarget = { queue = \"due\" }\n[tier.b]\ndelay = \"1h\"\ntarget = { queue = \"due\" }\n\
                 [tier.c]\ndelay = \"1h\"\nqueue_type = \"classic\"\nqueue = \"mine\"\ntarget = { queue = \"due\" }\n";
    let (code, said) = check(&rig, &rig.migrated(), tiers, "", &["--probe"]);
    assert_eq!(code, 0, "{said}");
    for text in ["quorum, at-least-once (tier a, b): arrived after 1", "classic (tier c): arrived after 1"] {
        assert!(said.contains(text), "{text} in\n{said}");
    }
    let queues = format!(
        "[Q || {{amqqueue, Q, _, _}} <- [{{amqqueue, element(2, E), 0, 0}} || E <- rabbit_amqqueue:list(<<\"{}\">>)]]",
        rig.name()
    );
    assert_eq!(rig.rabbit().eval(&queues), "[]");
}
