//! The one-shot commands work through a pooler, and what it refuses is said with the cure.

use super::Pooled;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::relay::START;
use crate::support::wait::{eventually, secs};

const TABLES: &str = "[outbox]\nwake = \"poll\"\n\n[tier.now]\ntarget = { queue = \"due\" }\n\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\nafter = \"1s\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn check_and_status_ask_the_database_through_it() {
    let pooled = Pooled::new("pooled_check");
    let db = pooled.rig.db().await;
    let orders = format!(
        "create table orders (id bigint primary key, status text, due timestamptz); create index on orders (due); \
         grant select (id, status, due), update (status) on orders to {}",
        pooled.role
    );
    db.batch_execute(&orders).await.unwrap();
    let daemon = Daemon::start(&pooled.rig, &format!("{}{TABLES}", pooled.base().render()));
    daemon.wait_ready(START);
    let config = daemon.config().to_str().unwrap();
    // Several times, so that each of the sessions has seen them.
    for _ in 0..4 {
        let (code, stdout, stderr) = run_cli(&["check", "--connect", "--config", config]);
        assert_eq!(code, 0, "{stdout}{stderr}");
        let (_, stdout, stderr) = run_cli(&["status", "--config", config]);
        assert!(stdout.contains("parked 0"), "{stdout}{stderr}");
    }
    pooled.assert_nothing_prepared(&daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_works_through_it_as_often_as_one_likes() {
    let pooled = Pooled::new("pooled_migrate");
    let url = pooled.pooler.url(pooled.rig.name(), pooled.rig.name());
    for _ in 0..4 {
        let (code, stdout, stderr) = run_cli(&["migrate", "--url", &url, "--grant-relay", &pooled.role]);
        assert_eq!(code, 0, "{stdout}{stderr}");
    }
    pooled.assert_nothing_prepared("");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_up_options_that_it_refuses_are_named_with_the_cure() {
    let pooled = Pooled::new("pooled_options");
    let base = pooled.base().render();
    let url = format!("/{}\"", pooled.rig.name());
    let options = format!("/{}?options=-c%20statement_timeout%3D5s\"", pooled.rig.name());
    let toml = format!("{}{TABLES}", base.replacen(&url, &options, 1));
    let cure = "unsupported startup parameter: options (08P01); a pooler refuses it: take it out of the URL, or add it \
        to the pooler's ignore_startup_parameters";
    let daemon = Daemon::start(&pooled.rig, &toml);
    daemon.wait_log(cure, START);
    eventually("/readyz says it", secs(10), || {
        daemon.get("/readyz").is_some_and(|(code, text)| code == 503 && text.contains(cure))
    });
    let (code, stdout, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains(cure), "{stdout}");
}
