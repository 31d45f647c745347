//! The commands for people: the verdict first, an exit code for scripts, and an answer with either end down.

use super::NOW;
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{eventually, secs};
use serde_json::Value;

/// Runs a command with this configuration: exit code, first line, everything.
fn run(daemon: &Daemon, args: &[&str]) -> (i32, String, String) {
    let config = daemon.config().display().to_string();
    let (code, stdout, stderr) = run_cli(&[args, &["--config", &config]].concat());
    (code, stdout.lines().next().unwrap_or_default().to_owned(), stdout + &stderr)
}

#[track_caller]
fn assert_says(daemon: &Daemon, args: &[&str], expected: i32, first: &str, parts: &[&str]) {
    let (code, line, all) = run(daemon, args);
    assert_eq!(code, expected, "{args:?}: {all}");
    assert!(line.contains(first), "{args:?}: {all}");
    assert!(parts.iter().all(|part| all.contains(part)), "{args:?}, {parts:?}: {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_status_answer_with_everything_up_and_with_each_part_down() {
    let rig = Rig::new("commands");
    let role = rig.migrated();
    let (postgres, rabbit) = (Proxy::new(rig.postgres().port()), Proxy::new(rig.rabbit().port()));
    let (postgres_port, rabbit_port) = (postgres.port(), rabbit.port());
    let base = Base { postgres_port, rabbit_port, ..rig.relay_base(&role) };
    // A target that nobody consumes is worth a word.
    let broker = Inspector::connect(&rig.amqp_url()).await;
    for queue in ["now", "due"] {
        broker.declare_queue(queue, quorum()).await;
    }
    let due = Consumer::new(&rig.amqp_url(), "due").await;
    let now = Consumer::new(&rig.amqp_url(), "now").await;
    let tier = "[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n";
    let mut daemon = Daemon::start(&rig, &format!("{}{NOW}{tier}", base.render()));
    daemon.wait_ready(START);
    let db = rig.db().await;

    assert_says(&daemon, &["check"], 0, "good", &[]);
    assert_says(&daemon, &["check", "--connect"], 0, "good", &["postgres: good", "rabbitmq: good"]);
    assert_says(&daemon, &["status"], 0, "ok: relaying", &["now", "t2s", "BACKLOG", "relays listening 1"]);
    assert_says(&daemon, &["config", "show"], 0, "", &["workers = 4", "default", "relay.toml", "queue = \"due\""]);
    let (code, _, json) = run(&daemon, &["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["ok"], &json["verdict"]), (0, &true.into(), &"ok: relaying".into()));
    assert_eq!(json["database"]["tiers"][0]["tier"], "now");
    assert_eq!(json["database"]["tiers"][0]["backlog"], 0);
    assert_eq!(json["daemon"]["ready"], true);

    db.execute("insert into duebox.state (name) values ('pause.tier.now')", &[]).await.unwrap();
    db.insert_rows("now", 3).await;
    db.insert_rows("nwo", 2).await;
    eventually("the daemon sees it", secs(10), || daemon.get("/readyz").is_some_and(|(_, text)| text.contains("nwo")));
    assert_says(&daemon, &["status"], 1, "not ok: ", &["did the application mean 'now'?", "paused: tier now for "]);
    db.execute("delete from duebox.state where name like 'pause.%'", &[]).await.unwrap();
    db.execute("delete from duebox.outbox", &[]).await.unwrap();

    rabbit.set(Mode::Reset);
    daemon.wait_unready(secs(10));
    assert_says(&daemon, &["status"], 1, "not ok: rabbitmq: ", &["BACKLOG"]);
    assert_says(&daemon, &["check", "--connect"], 1, "good", &["postgres: good", "connect to RabbitMQ at"]);
    rabbit.set(Mode::Pass);
    daemon.wait_ready(START);

    postgres.set(Mode::Reset);
    daemon.wait_unready(secs(10));
    assert_says(&daemon, &["status"], 1, "not ok: ", &["cannot connect to Postgres"]);
    let (code, _, json) = run(&daemon, &["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["ok"], &json["daemon"]["ready"]), (1, &false.into(), &false.into()));
    assert!(json["database"]["error"].is_string(), "{json}");
    assert_says(&daemon, &["check", "--connect"], 1, "good", &["rabbitmq: good", "cannot connect to Postgres"]);
    postgres.set(Mode::Pass);
    daemon.wait_ready(START);

    db.insert_rows("nwo", 2).await;
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
    let parts = ["2 row(s) name tier 'nwo'", "BACKLOG", "relays listening 0"];
    assert_says(&daemon, &["status"], 1, "not ok: no daemon answers at 127.0.0.1:", &parts);
    due.close().await;
    now.close().await;
    let parts = ["postgres: good", "rabbitmq: good", "nobody consumes target queue 'now'"];
    assert_says(&daemon, &["check", "--connect"], 0, "good", &parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_connect_names_what_is_wrong_on_either_end_with_78() {
    let rig = Rig::new("checkwrong");
    let daemon = rig.relay(NOW);
    let db = rig.db().await;
    let role = format!("{}_relay", rig.name());
    db.batch_execute(&format!("revoke delete on duebox.outbox from {role}")).await.unwrap();
    let missing = format!("grant delete on duebox.outbox to {role};");
    assert_says(&daemon, &["check", "--connect"], 78, "good", &["postgres: 1 problem", &missing, "rabbitmq: good"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_taken_for_each_other_are_asked_after() {
    let rig = Rig::new("swapped");
    let role = rig.migrated();
    let base = Base { postgres_port: rig.rabbit().port(), rabbit_port: rig.postgres().port(), ..rig.relay_base(&role) };
    let config = rig.folder().join("relay.toml");
    std::fs::write(&config, format!("{}{NOW}", base.render())).unwrap();
    let (code, text, _) = run_cli(&["check", "--connect", "--config", config.to_str().unwrap()]);
    assert_eq!(code, 1, "{text}");
    for server in ["PostgreSQL", "RabbitMQ"] {
        assert!(text.contains(&format!("does {server} listen there?")), "{server}: {text}");
    }
}
