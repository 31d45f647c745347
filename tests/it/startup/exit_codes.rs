//! Exit codes: 0 clean stop, 2 usage, 78 configuration or topology at start, 1 the rest.

use super::{NOW, misconfigured};
use crate::support::consumer::{Inspector, quorum};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{secs, wait_until};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

#[test]
fn usage_is_2_and_a_bad_configuration_is_78() {
    let rig = Rig::new("usage");
    let file = |name: &str, text: &str| {
        let path = rig.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = file("broken.toml", "[postgres\n");
    let wrong = file("wrong.toml", &format!("{}[relay]\nworkers = 0\nwrokers = 4\n", rig.config()));
    // Good as far as the configuration reads it; the driver finds out.
    let listen = Base { postgres: "listen_url = \"host=h port=x\"".to_owned(), ..rig.base() };
    let deaf = file("deaf.toml", &format!("{}{NOW}", listen.render()));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&[], 2, &["Usage"]),
        (&["--nonsense"], 2, &["--nonsense"]),
        (&["fly"], 2, &["fly"]),
        (&["status", "--nonsense"], 2, &["--nonsense"]),
        (&["run"], 78, &["relay.toml"]),
        (&["run", "--config", "/nowhere/relay.toml"], 78, &["/nowhere/relay.toml"]),
        (&["run", "--config", &broken], 78, &["broken.toml"]),
        (&["run", "--config", &wrong], 78, &["workers", "wrokers", "wrong.toml"]),
        (&["check", "--config", &wrong], 78, &["workers", "wrokers", "wrong.toml"]),
        (&["run", "--config", &deaf], 78, &["postgres.listen_url", "port"]),
        (&["check", "--config", &deaf], 78, &["postgres.listen_url", "port"]),
        (&["status", "--config", &wrong], 78, &["workers", "wrokers"]),
        (&["config", "show", "--config", &wrong], 78, &["workers", "wrokers"]),
    ];
    for (args, expected, texts) in cases {
        let (code, stdout, stderr) = run_cli(args);
        assert_eq!(code, *expected, "{args:?}: {stdout}{stderr}");
        let said = format!("{stdout}{stderr}");
        assert!(texts.iter().all(|text| said.contains(text)), "{args:?}: {said}");
    }
}

#[test]
fn a_clean_stop_is_0_and_a_taken_admin_port_is_1() {
    let rig = Rig::new("stops");
    let mut daemon = rig.relay(NOW);
    let mut second = Daemon::start(&rig, &std::fs::read_to_string(daemon.config()).unwrap());
    assert_eq!(second.wait_exit(secs(20)), 1, "{}", second.log());
    assert!(second.log().contains("admin.listen = 127.0.0.1:"), "{}", second.log());
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
    assert!(daemon.log().contains("stopped"));
}

/// What a delay queue of 60,001 ms is, with something changed.
fn other(name: &str, value: &AMQPValue) -> FieldTable {
    let mut arguments = FieldTable::default();
    let text = |text: &str| AMQPValue::LongString(text.into());
    let all = [
        ("x-queue-type", text("quorum")),
        ("x-message-ttl", AMQPValue::LongInt(60_001)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text("due")),
    ];
    for (key, default) in all {
        let value = if key == name { value.clone() } else { default };
        arguments.insert(key.into(), value);
    }
    arguments
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_queue_that_differs_is_78_with_both_values_and_the_cure_and_is_never_deleted() {
    let rig = Rig::new("mismatch");
    let role = rig.migrated();
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let elsewhere = AMQPValue::LongString("elsewhere".into());
    let cases = [
        ("ttl", other("x-message-ttl", &AMQPValue::LongInt(60_002)), ["x-message-ttl", "60002", "60001"]),
        ("classic", FieldTable::default(), ["inequivalent arg", "x-queue-type = quorum", "x-message-ttl = 60001"]),
        ("key", other("x-dead-letter-routing-key", &elsewhere), ["x-dead-letter-routing-key", "'elsewhere'", "'due'"]),
    ];
    for (name, arguments, texts) in cases {
        broker.declare_queue(name, arguments).await;
        broker.publish("", name, b"kept", BasicProperties::default()).await;
        let tier =
            format!("[tier.slow]\ndelay = \"60001ms\"\nqueue = \"{name}\"\ntarget = {{ queue = \"due\" }}\n{NOW}");
        let said = misconfigured(&rig, &rig.relay_base(&role), &tier);
        let parts = [&texts[..], &["never deletes a queue", "another queue name"]].concat();
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
        assert_eq!(broker.depth(name).await, Some(1), "what was in it is in it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_delay_makes_a_new_queue_and_the_old_one_drains() {
    let rig = Rig::new("edited");
    let role = rig.migrated();
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_queue("due", quorum()).await;
    let tier = |delay: &str| format!("[tier.slow]\ndelay = \"{delay}\"\ntarget = {{ queue = \"due\" }}\n");
    let mut daemon = rig.daemon(&role, &tier("3s"));
    daemon.wait_ready(START);
    let db = rig.db().await;
    db.insert_rows("slow", 20).await;
    wait_until(secs(10), async || db.count("sent_at is not null").await == 20).await;
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
    let daemon = rig.daemon(&role, &tier("2s"));
    daemon.wait_ready(START);
    db.insert_rows("slow", 20).await;
    wait_until(secs(15), async || broker.depth("due").await == Some(40)).await;
    let (_, stdout, _) = run_cli(&["status", "--config", &daemon.config().display().to_string()]);
    assert!(stdout.contains("old delay queue 'duebox.slow.3000."), "{stdout}");
}
