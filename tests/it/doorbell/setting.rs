//! With and without the trigger, and with one that does not fit: what rings, what is said, what cures it.

use super::{AT_ONCE, Awake, NEVER, NOW, STAY, Sleeper, asleep, pid, waits_for, wakefulness};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{eventually, secs, wait_until};

const DEFINITION: &str = "select coalesce((select pg_get_triggerdef(t.oid) from pg_trigger t \
                          where t.tgrelid = 'duebox.outbox'::regclass and t.tgname = 'outbox_bell'), 'none')";

#[tokio::test(flavor = "multi_thread")]
async fn no_doorbell_is_kept_until_it_is_asked_for_again() {
    let rig = Rig::new("no_doorbell");
    let db = rig.db().await;
    let definition = async || -> String { db.query_one(DEFINITION, &[]).await.unwrap().get(0) };
    rig.migrate(&[]);
    assert!(definition().await.contains("pg_try_advisory_lock_shared("));
    rig.migrate(&["--no-doorbell"]);
    assert_eq!(definition().await, "none");
    rig.migrate(&[]);
    assert_eq!(definition().await, "none", "an upgrade does not bring it back");
    let url = rig.postgres_url();
    let (_, said, _) = run_cli(&["migrate", "--url", &url]);
    assert!(said.contains("inserts do not ring, relays poll"), "{said}");
    let (_, said, _) = run_cli(&["migrate", "--url", &url, "--doorbell"]);
    assert!(said.contains("inserts ring for the relays"), "{said}");
    assert!(definition().await.contains("pg_try_advisory_lock_shared("));
    let (code, _, stderr) = run_cli(&["migrate", "--url", &url, "--doorbell", "--no-doorbell"]);
    assert_eq!(code, 2, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_trigger_the_relay_says_so_and_polls_in_growing_steps() {
    let rig = Rig::new("untriggered");
    let role = rig.migrated();
    rig.migrate(&["--no-doorbell"]);
    let daemon = rig.daemon(&role, &format!("[outbox]\npoll = \"200ms\"\n{NOW}"));
    let line = daemon.wait_log("no trigger on duebox.outbox rings", secs(15));
    assert!(line.contains("migrate --doorbell") && line.contains("wake = \"poll\""), "{line}");
    eventually("it polls", AT_ONCE, || wakefulness(&daemon) == "polling");
    let db = rig.db().await;
    // An insert rings for nobody, and need not.
    db.insert(&Row::new("now")).await;
    wait_until(AT_ONCE, async || db.count("sent_at is not null").await == 1).await;
    let held = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'
                and database = (select oid from pg_database where datname = current_database())";
    let held: i64 = db.query_one(held, &[]).await.unwrap().get(0);
    assert_eq!(held, 0, "a relay that hears nobody tells nobody that it is awake");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_taken_away_under_a_sleeping_relay_is_noticed_and_it_polls() {
    let sleeper = Sleeper::new("taken_away").await;
    sleeper.rig.migrate(&["--no-doorbell"]);
    sleeper.daemon.wait_log("no trigger on duebox.outbox rings", secs(30));
    eventually("it polls", AT_ONCE, || wakefulness(&sleeper.daemon) == "polling");
    sleeper.rig.migrate(&["--doorbell"]);
    eventually("its return is soon noticed", secs(15), || wakefulness(&sleeper.daemon) == "asleep");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_in_a_database_without_the_outbox_is_told_where_it_is() {
    let rig = Rig::new("listens_elsewhere");
    let role = rig.migrated();
    let elsewhere = Rig::new("listens_here");
    let mut base = rig.relay_base(&role);
    base.postgres = format!("listen_url = \"{}\"", elsewhere.postgres_url());
    let daemon = Daemon::start(&rig, &format!("{}{NOW}", base.render()));
    let line = daemon.wait_log("has no duebox.outbox", secs(15));
    assert!(line.contains(elsewhere.name()) && line.contains("postgres.listen_url"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_with_the_lock_of_another_name_is_named_and_migrate_mends_it() {
    let rig = Rig::new("renamed");
    rig.migrate(&[]);
    let db = rig.db().await;
    db.batch_execute("alter schema duebox rename to shop_outbox").await.unwrap();
    let schema = "schema = \"shop_outbox\"\n";
    let role = rig.create_role("relay");
    let url = rig.postgres_url();
    let toml = |rig: &Rig| {
        let mut base = rig.relay_base(&role);
        base.postgres = schema.to_owned();
        format!("{}[outbox]\npoll = \"200ms\"\n{NOW}", base.render())
    };
    db.batch_execute(&format!(
        "grant usage on schema shop_outbox to {role}; grant all on all tables in schema shop_outbox to {role};
         grant execute on all functions in schema shop_outbox to {role}"
    ))
    .await
    .unwrap();
    let daemon = Daemon::start(&rig, &toml(&rig));
    daemon.wait_log("carries the lock of another schema name", secs(15));
    let (code, _, stderr) = run_cli(&["migrate", "--url", &url, "--schema", "shop_outbox"]);
    assert_eq!(code, 0, "{stderr}");
    // Looked at again every half minute, without a restart.
    eventually("producers are heard again", secs(60), || wakefulness(&daemon) == "asleep");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_word_that_inserts_wakes_a_sleeping_relay() {
    let mut sleeper = Sleeper::new("words").await;
    let words = [
        "insert into duebox.outbox (tier, payload) values ('now', '{}')",
        "select duebox.enqueue('now', 'k', 't', '{}')",
        r#"copy duebox.outbox (tier, payload) from program 'printf "now\t{}\n"'"#,
        "with o as (insert into duebox.outbox (tier, payload) values ('now', '{}') returning id) select * from o",
        "merge into duebox.outbox o using (select 1) s on false when not matched then insert (tier, payload) values ('now', '{}')",
        "prepare p as insert into duebox.outbox (tier, payload) values ('now', '{}'); execute p",
        "create view v as select tier, payload from duebox.outbox; insert into v values ('now', '{}')",
    ];
    let db = sleeper.rig.db_as("postgres").await;
    for word in words {
        db.batch_execute(word).await.unwrap();
        sleeper.due.next(AT_ONCE).await.unwrap_or_else(|| panic!("rings: {word}"));
        asleep(&sleeper.daemon);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_larger_than_a_notification_may_be_rings_and_leaves() {
    let mut sleeper = Sleeper::new("large_payload").await;
    let large = serde_json::json!({ "note": "x".repeat(9_000) });
    sleeper.db.insert(&Row { payload: large, ..Row::new("now") }).await;
    let delivery = sleeper.due.next(AT_ONCE).await.expect("it rings");
    assert!(delivery.body.len() > 9_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_needs_no_doorbell_and_then_leaves_at_a_poll() {
    let rig = Rig::private("prepared", Own::Postgres);
    rig.postgres().sql("postgres", "alter system set max_prepared_transactions = 5");
    rig.postgres().restart();
    let role = rig.migrated();
    let db = rig.db().await;
    let prepare = "begin; insert into duebox.outbox (tier, payload) values ('now', '{}'); prepare transaction 'order'";
    // Nobody holds K, so the insert rings, and a transaction that has rung cannot be prepared.
    let refused = db.batch_execute(prepare).await.unwrap_err();
    assert!(refused.as_db_error().is_some_and(|db| db.message().contains("NOTIFY")), "{refused:?}");
    prepared_while_somebody_has_k_it_is_waited_for_and_named(&rig, &role).await;
    rig.migrate(&["--no-doorbell"]);
    let daemon = rig.daemon(&role, &format!("[outbox]\nwake = \"poll\"\npoll = \"200ms\"\n{NOW}"));
    daemon.wait_ready(START);
    db.batch_execute(prepare).await.unwrap();
    db.batch_execute("commit prepared 'order'").await.unwrap();
    wait_until(AT_ONCE, async || db.count("sent_at is not null").await == 1).await;
    assert!(!daemon.log().contains("migrate --no-doorbell"), "{}", daemon.log());
}

async fn prepared_while_somebody_has_k_it_is_waited_for_and_named(rig: &Rig, role: &str) {
    let daemon = rig.daemon(role, &format!("{STAY}{NEVER}{NOW}"));
    daemon.wait_ready(START);
    asleep(&daemon);
    let (db, awake) = (rig.db().await, Awake::new(rig).await);
    let insert = "insert into duebox.outbox (tier, payload) values ('now', '{}')";
    db.batch_execute(&format!("begin; {insert}; prepare transaction 'silent'")).await.unwrap();
    awake.ends().await;
    db.batch_execute(insert).await.unwrap();
    eventually("it is waited for", AT_ONCE, || waits_for(&daemon) == [0]);
    let (_, said, _) = run_cli(&["status", "--config", daemon.config().to_str().unwrap()]);
    assert!(said.contains("a prepared transaction (see pg_prepared_xacts)"), "{said}");
    db.batch_execute("rollback prepared 'silent'").await.unwrap();
    asleep(&daemon);
    one_that_is_prepared_while_it_is_waited_for_leaves_at_its_commit(rig, &daemon).await;
    db.batch_execute("delete from duebox.outbox").await.unwrap();
}

/// PREPARE gives a transaction another name in the lock table.
async fn one_that_is_prepared_while_it_is_waited_for_leaves_at_its_commit(rig: &Rig, daemon: &Daemon) {
    let (db, producer, awake) = (rig.db().await, rig.db().await, Awake::new(rig).await);
    producer
        .batch_execute("begin; insert into duebox.outbox (tier, key, payload) values ('now', 'late', '{}')")
        .await
        .unwrap();
    awake.ends().await;
    db.insert(&Row::new("now")).await;
    let pid = pid(&producer).await;
    eventually("it is waited for", AT_ONCE, || waits_for(daemon).contains(&pid));
    producer.batch_execute("prepare transaction 'late'").await.unwrap();
    eventually("and under its new name", AT_ONCE, || waits_for(daemon) == [0]);
    producer.batch_execute("commit prepared 'late'").await.unwrap();
    wait_until(AT_ONCE, async || db.count("key = 'late' and sent_at is not null").await == 1).await;
    asleep(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_polls_is_told_when_inserts_ring_for_nobody() {
    let rig = Rig::new("rings_in_vain");
    let daemon = rig.relay(&format!("[outbox]\nwake = \"poll\"\n{NOW}"));
    daemon.wait_log("duebox migrate --no-doorbell", secs(15));
    let (code, said, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("inserts ring although wake = \"poll\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_cut_off_hears_again_and_misses_nothing() {
    let mut sleeper = Sleeper::new("cut_off").await;
    for _ in 0..3 {
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where application_name = 'duebox listen' and datname = current_database()";
        let superuser = sleeper.rig.db_as("postgres").await;
        let ended: i64 = superuser.query_one(end, &[]).await.unwrap().get(0);
        assert_eq!(ended, 1);
        // In the gap, and none later.
        sleeper.db.insert(&Row::new("now")).await;
        sleeper.due.next(AT_ONCE).await.expect("each reconnect looks once");
        asleep(&sleeper.daemon);
        sleeper.one_row().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_nobody_knows_is_forgotten_with_its_rows_however_rarely_the_relay_polls() {
    let sleeper = Sleeper::new("nobodys").await;
    sleeper.db.insert(&Row::new("zz")).await;
    let named = || sleeper.daemon.get("/readyz").is_some_and(|(_, text)| text.contains("tier 'zz'"));
    eventually("it is named", AT_ONCE, named);
    sleeper.db.batch_execute("delete from duebox.outbox where tier = 'zz'").await.unwrap();
    eventually("and forgotten", secs(30), || !named());
}
