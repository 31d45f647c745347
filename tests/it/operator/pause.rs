//! A pause holds for all relays and over restarts, says who set it and why, and its end is felt at once.

use super::Desk;
use crate::support::daemon::{Daemon, run_cli_with};
use crate::support::relay::START;
use crate::support::wait::{eventually, secs, wait_until};
use serde_json::Value;

const TIERS: &str = "[outbox]\npoll = \"1h\"\n[tier.now]\ntarget = { queue = \"now\" }\n\
    [tier.order-30m]\ntarget = { queue = \"other\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"30m\"\n[sweep]\nenabled = false\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_over_a_restart_and_when_it_ends_rows_leave_at_once() {
    let desk = Desk::new("pause_holds", TIERS);
    let db = desk.rig.db().await;
    let start = || {
        let daemon = Daemon::start(&desk.rig, &desk.toml());
        daemon.wait_ready(START);
        daemon
    };
    let sent = async |tier: &str, rows: i64| {
        wait_until(secs(20), async || db.count(&format!("tier = '{tier}' and sent_at is not null")).await == rows)
            .await;
    };
    let mut daemon = start();
    desk.says(
        &["pause", "tier", "now", "--reason", "stock is counted"],
        0,
        &["paused: tier now", "until it is resumed"],
    );
    for round in 1..=2 {
        db.insert_rows("now", 10).await;
        db.insert_rows("order-30m", 1).await;
        sent("order-30m", round).await;
        assert_eq!(db.count("tier = 'now' and sent_at is not null").await, 0, "round {round}");
        eventually("the metric says it", secs(20), || daemon.metric("duebox_paused{what=\"tier now\"}") == Some(1.0));
        for what in ["relay", "closer", "sweep", "tier order-30m", "rule unpaid"] {
            assert_eq!(daemon.metric(&format!("duebox_paused{{what=\"{what}\"}}")), Some(0.0), "{what}");
        }
        if round == 1 {
            daemon.sigterm();
            assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
            daemon = start();
        }
    }
    eventually("it sleeps", secs(20), || daemon.metric("duebox_wakefulness{state=\"asleep\"}") == Some(1.0));
    desk.says(&["resume", "tier", "now"], 0, &["resumed: tier now", ": stock is counted", "leave now"]);
    sent("now", 20).await;
    eventually("the metric says it", secs(20), || daemon.metric("duebox_paused{what=\"tier now\"}") == Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_says_since_when_by_whom_and_why_and_stays_as_it_was_when_it_is_set_again() {
    let desk = Desk::new("pause_says", TIERS);
    let db = desk.rig.db().await;
    let says = ["it is applied to no order until", "no sweep of this relay.toml comes back to their orders"];
    desk.says(&["pause", "rule", "unpaid", "--reason", "wrong \"due\""], 0, &says);
    let age = "update duebox.state set at = '2026-01-02 03:04:05Z' where name = 'pause.rule.unpaid'";
    assert_eq!(db.execute(age, &[]).await.unwrap(), 1);
    let already = "paused already: rule unpaid since 2026-01-02T03:04:05Z (";
    let text = desk.says(&["pause", "rule", "unpaid", "--reason", "other"], 0, &[already, "wrong \"due\""]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(text.contains(host.trim()) && text.contains(&format!(" as {}", desk.role)), "{text}");
    desk.says(&["pause", "relay"], 0, &[]);
    db.execute("insert into duebox.state (name) values ('pause.closer')", &[]).await.unwrap();
    let parts =
        ["paused: closer for 0s, relay for ", "\npaused closer since ", "\npaused rule unpaid since 2026-01-02T"];
    desk.says(&["status"], 1, &parts);
    let (_, json) = desk.run(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let pauses = &json["database"]["pauses"];
    assert_eq!((&pauses[0]["what"], &pauses[0]["role"]), (&"closer".into(), &Value::Null), "{pauses}");
    assert_eq!((&pauses[2]["what"], &pauses[2]["reason"]), (&"rule unpaid".into(), &"wrong \"due\"".into()));
    assert_eq!(pauses[2]["role"], desk.role.as_str());
    assert!(pauses[2]["age_seconds"].as_f64().unwrap() > 1e6, "{pauses}");

    let left = [
        "resumed: rule unpaid since 2026",
        "no sweep of this relay.toml finds the orders",
        "still paused: closer",
        "still paused: relay",
    ];
    desk.says(&["resume", "rule", "unpaid"], 0, &left);
    desk.says(&["resume", "rule", "unpaid"], 0, &["rule unpaid was not paused", "still paused: relay"]);
    desk.says(&["resume", "--all"], 0, &["resumed: closer", "resumed: relay", "leave now", "for the closer"]);
    desk.says(&["resume", "--all"], 0, &["nothing was paused"]);
    assert_eq!(db.query("select from duebox.state where name like 'pause.%'", &[]).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_the_file_does_not_have_is_refused_with_the_nearest_one_unless_forced() {
    let desk = Desk::new("pause_name", TIERS);
    let db = desk.rig.db().await;
    let unknown = "relay.toml has no tier 'ordr-30m'; did you mean 'order-30m'?";
    desk.says(&["pause", "tier", "ordr-30m"], 2, &["not paused: ", unknown, "--force"]);
    desk.says(&["pause", "rule", "quite-another"], 2, &["relay.toml has no rule 'quite-another'; it has unpaid"]);
    assert_eq!(db.query("select from duebox.state where name like 'pause.%'", &[]).await.unwrap().len(), 0);
    desk.says(&["resume", "tier", "ordr-30m"], 2, &["tier ordr-30m was not paused: ", unknown]);
    desk.says(&["pause", "tier", "theirs", "--force"], 0, &["paused: tier theirs"]);
    desk.says(&["resume", "tier", "theirs"], 0, &["resumed: tier theirs"]);
    desk.says(&["resume"], 2, &["--all"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_as_the_grant_that_gives_it() {
    let desk = Desk::new("pause_grant", TIERS);
    let (db, role) = (desk.rig.db().await, &desk.role);
    let revoke = format!(
        "revoke insert, delete on duebox.state from {role}; revoke execute on function duebox.ring() from {role}; \
         revoke usage on schema duebox from {role}"
    );
    db.batch_execute(&revoke).await.unwrap();
    let grants = [
        format!("grant usage on schema duebox to {role};"),
        format!("grant insert, delete on duebox.state to {role};"),
        format!("grant execute on function duebox.ring() to {role};"),
    ];
    let text = desk.says(&["pause", "relay"], 1, &grants.each_ref().map(String::as_str));
    for line in text.lines().filter_map(|line| line.split_once("missing privilege: ")) {
        db.batch_execute(line.1).await.unwrap();
    }
    desk.says(&["pause", "relay"], 0, &["paused: relay"]);
    db.batch_execute(&format!("revoke delete on duebox.state from {role}")).await.unwrap();
    desk.says(&["resume", "relay"], 1, &[&format!("missing privilege: grant delete on duebox.state to {role};")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_stays_ready_and_says_what_is_paused_since_when_and_by_whom() {
    let desk = Desk::new("pause_shown", TIERS);
    let daemon = Daemon::start(&desk.rig, &desk.toml());
    daemon.wait_ready(START);
    let ready = || daemon.get("/readyz").unwrap_or_default();
    assert!(!ready().1.contains("paused"), "{}", ready().1);
    let all = [&["relay"][..], &["closer"], &["sweep"], &["tier", "order-30m"], &["rule", "unpaid"]];
    for what in all {
        desk.says(&[&["pause"][..], what, &["--reason", "a recount"]].concat(), 0, &[]);
    }
    let line = |what: &[&str]| format!("paused {} since 2", what.join(" "));
    eventually("each is named", secs(20), || all.iter().all(|what| ready().1.contains(&line(what))));
    let (code, text) = ready();
    assert!(code == 200 && text.starts_with("ready\n"), "{code}: {text}");
    let by = format!(" as {}: a recount\n", desk.role);
    assert_eq!(text.matches(&by).count(), all.len(), "{text}");
    let status: Value = serde_json::from_str(&daemon.get("/status").unwrap().1).unwrap();
    assert_eq!(status["pauses"].as_array().map(Vec::len), Some(all.len()), "{status}");
    let pause = status["pauses"].as_array().unwrap().iter().find(|pause| pause["what"] == "tier order-30m").unwrap();
    assert!(pause["since"].is_string() && pause["by"].is_string() && pause["reason"] == "a recount", "{pause}");
    // Whoever cannot ask the database has it from the daemon.
    let away = [("DUEBOX_POSTGRES__URL", "postgres://nobody@127.0.0.1:1/nowhere")];
    let (code, text, _) = run_cli_with(&["status", "--config", desk.config.to_str().unwrap()], &away);
    assert!(code == 1 && all.iter().all(|what| text.contains(&line(what))), "{text}");
    desk.says(&["resume", "--all"], 0, &[]);
    eventually("none is left", secs(20), || ready().0 == 200 && !ready().1.contains("paused"));
}
