//! A real standby: it is refused while it is one, and found when it has been promoted.

use super::{READ_ONLY, assert_says};
use crate::support::between::NOW;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::db::Db;
use crate::support::oracle::Oracle;
use crate::support::postgres::Postgres;
use crate::support::relay::START;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

/// A relay.toml whose URL names these servers in this order.
fn toml(rig: &Rig, role: &str, servers: &[&Postgres], parameters: &str) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let own = format!("127.0.0.1:{}/{}\"", rig.postgres().port(), rig.name());
    let url = format!("{}/{}{parameters}\"", hosts.join(","), rig.name());
    format!("{}[outbox]\npoll = \"1h\"\n\n{NOW}", rig.relay_base(role).render().replacen(&own, &url, 1))
}

/// Waits until a standby has everything that its primary has committed so far.
async fn caught_up(primary: &Db, standby: &Db) {
    let written: String = primary.query_one("select pg_current_wal_flush_lsn()::text", &[]).await.unwrap().get(0);
    let replayed = format!("select pg_last_wal_replay_lsn() >= '{written}'");
    wait_until(secs(30), async || standby.query_one(&replayed, &[]).await.unwrap().get(0)).await;
}

async fn on(server: &Postgres, rig: &Rig) -> Db {
    Db::connect(&server.url(rig.name(), rig.name())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_knows_both_servers_goes_on_at_the_promoted_one() {
    let rig = Rig::private("promoted", Own::Postgres);
    let role = rig.migrated();
    let (primary, standby) = (rig.postgres(), rig.postgres().standby());
    // The standby stands first: it is passed over.
    let text = toml(&rig, &role, &[&standby, primary], "");
    let daemon = Daemon::start(&rig, &text);
    daemon.wait_ready(START);
    let mut oracle = Oracle::new(&rig, &[("now", "due")]);
    let (db, following) = (rig.db().await, on(&standby, &rig).await);
    db.insert_rows("now", 1_000).await;
    oracle.settled(&db).await;
    caught_up(&db, &following).await;
    primary.kill9();
    daemon.wait_unready(secs(20));
    assert_says(&daemon, "postgres: ", READ_ONLY);
    standby.promote();
    let db = on(&standby, &rig).await;
    db.insert_rows("now", 1_000).await;
    oracle.settled(&db).await;
    daemon.wait_ready(secs(20));
    // At rest it is woken there as well.
    wait_until(secs(20), async || daemon.get("/readyz").is_some_and(|(_, text)| !text.contains("listener: "))).await;
    db.insert_rows("now", 1).await;
    oracle.settled(&db).await;
    assert_eq!(oracle.duplicates(&db).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_names_only_a_standby_is_refused_and_tried_again() {
    let rig = Rig::private("standby", Own::Postgres);
    let role = rig.migrated();
    let standby = rig.postgres().standby();
    let daemon = Daemon::start(&rig, &toml(&rig, &role, &[&standby], ""));
    assert_says(&daemon, "postgres: ", READ_ONLY);
    assert_says(&daemon, "listener: ", READ_ONLY);
    let (code, stdout, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains(READ_ONLY) && stdout.contains("postgres://duebox@db1,db2/shop"), "{stdout}");
    let url = standby.url(rig.name(), rig.name());
    let (code, _, stderr) = run_cli(&["migrate", "--url", &url]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains(READ_ONLY), "{stderr}");
    let (db, following) = (rig.db().await, on(&standby, &rig).await);
    db.insert_rows("now", 100).await;
    caught_up(&db, &following).await;
    assert_eq!(daemon.get("/readyz").map(|(code, _)| code), Some(503), "rows of a standby are nobody's to claim");
    standby.promote();
    let db = on(&standby, &rig).await;
    Oracle::new(&rig, &[("now", "due")]).settled(&db).await;
    daemon.wait_ready(secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_leads_to_a_standby_is_polled_for() {
    let rig = Rig::private("standby_listen", Own::Postgres);
    let role = rig.migrated();
    let standby = rig.postgres().standby();
    let listen = format!("[postgres]\nlisten_url = \"{}\"", standby.url(&role, rig.name()));
    let text = toml(&rig, &role, &[rig.postgres()], "?target_session_attrs=primary").replacen("[postgres]", &listen, 1);
    let daemon = Daemon::start(&rig, &text);
    assert_says(&daemon, "listener: ", READ_ONLY);
    daemon.wait_ready(START);
    let db = rig.db().await;
    db.insert_rows("now", 10).await;
    Oracle::new(&rig, &[("now", "due")]).settled(&db).await;
}
