//! Rows that cannot go do not slow down those that can: a million of a paused tier, a million of an unknown one.
//!
//! Told by the pages that each statement touches, run as the daemon runs it and with its rights: time depends on
//! whose machine it is.

mod held;

use crate::support::consumer::Consumer;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::db::{Db, Row};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::secs;
use serde_json::Value;
use std::time::SystemTime;
use tokio_postgres::types::{ToSql, Type};

const CLAIM: &str = include_str!("../../sql/claim.sql");
const LOOK: &str = include_str!("../../sql/look.sql");
const UNCLAIMED: &str = include_str!("../../sql/unclaimed.sql");
const BACKLOG: &str = include_str!("../../sql/backlog.sql");

/// A million rows of a tier. In the order of their ids and without keys, as only the pending index matters here and
/// random entries in the other two take most of the time.
const MILLION: &str = "insert into duebox.outbox (tier, message_id, payload) \
    select $1::text, ($2::text || lpad(to_hex(i), 31, '0'))::uuid, '{}' from generate_series(1, 1000000) as i";

const KNOWN: [&str; 3] = ["order-new", "order-paid", "order-shipped"];
const TYPO: &str = "order-piad";

/// Rows that the claim finds, and the pages it may touch for them: each costs a visit to read and one to lock.
const CLAIMED: i32 = 10;
const PAGES: i64 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_million_paused_and_a_million_unknown_rows_do_not_slow_the_others() {
    let rig = Rig::alone("flat");
    let role = rig.create_role("relay");
    rig.migrate(&["--grant-relay", &role]);
    let db = rig.db().await;
    db.batch_execute("insert into duebox.state (name) values ('pause.tier.order-new')").await.unwrap();
    db.execute(MILLION, &[&"order-new", &"a"]).await.unwrap();
    db.execute(MILLION, &[&TYPO, &"b"]).await.unwrap();
    db.insert_rows("order-paid", CLAIMED).await;
    pages_stay_few(&rig.db_as(&role).await).await;

    let mut toml = rig.relay_base(&role).render();
    for tier in KNOWN {
        toml.push_str(&format!("[tier.{tier}]\ntarget = {{ queue = \"{tier}\" }}\n"));
    }
    let daemon = Daemon::start(&rig, &toml);
    daemon.wait_ready(START);
    let mut paid = Consumer::new(&rig.amqp_url(), "order-paid").await;
    for _ in 0..CLAIMED {
        paid.next(secs(10)).await.expect("what waited goes out");
    }
    let mut slowest = 0.0_f64;
    for n in 0..20 {
        db.insert(&Row::new("order-paid").key(&n.to_string())).await;
        let begun = SystemTime::now();
        let delivery = paid.next(secs(5)).await.expect("new rows go out");
        slowest = slowest.max(delivery.received.duration_since(begun).unwrap_or_default().as_secs_f64());
    }
    println!("slowest of 20 rows beside two million that cannot go: {:.1} ms", slowest * 1_000.0);
    assert!(slowest < 1.0, "one took {slowest} s");
    assert_eq!(db.count("sent_at is not null and tier <> 'order-paid'").await, 0);
    an_unknown_tier_is_named_everywhere(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_is_due_is_found_behind_hundreds_that_are_not() {
    let rig = Rig::new("strays");
    let role = rig.migrated();
    let db = rig.db().await;
    let strays = "insert into duebox.outbox (tier, available_at, payload) \
        select 'a' || i, now() + interval '1 h', '{}' from generate_series(1, 5000) as i where i <= $1::bigint";
    db.execute(strays, &[&500_i64]).await.unwrap();
    db.insert_rows("z", 1).await;
    let relay = rig.db_as(&role).await;
    relay.batch_execute("set search_path = duebox, pg_temp").await.unwrap();
    let tiers: Vec<&str> = KNOWN.into();
    let rows = relay.query_typed(UNCLAIMED, &[(&tiers, Type::TEXT_ARRAY)]).await.unwrap();
    let first: (String, bool) = (rows[0].get("tier"), rows[0].get("due"));
    assert_eq!((rows.len(), first), (100, ("z".to_owned(), true)));
    // However many there are, the walk ends.
    db.execute(&strays.replace("'a'", "'b'"), &[&5_000_i64]).await.unwrap();
    let (pages, _) = explain(&relay, UNCLAIMED, &[(&tiers, Type::TEXT_ARRAY)]).await;
    assert!(pages < 6_000, "looking for unknown tiers touches {pages} pages");
}

/// Explains the daemon's statements as it runs them.
async fn pages_stay_few(relay: &Db) {
    relay.batch_execute("set search_path = duebox, pg_temp").await.unwrap();
    let none: Option<SystemTime> = None;
    let cursor = format!("declare claim no scroll cursor for {CLAIM}");
    for (tier, rows) in [("order-paid", CLAIMED), ("order-new", 0), ("order-shipped", 0)] {
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&tier, Type::TEXT), (&none, Type::TIMESTAMPTZ), (&500_i64, Type::INT8)];
        let (pages, found) = explain(relay, &cursor, &parameters).await;
        assert_eq!(found, i64::from(rows), "rows of {tier}");
        assert!(pages < PAGES, "claiming {tier} touches {pages} pages");
    }
    let tiers: Vec<&str> = KNOWN.into();
    let bounds = vec![none; tiers.len()];
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&tiers, Type::TEXT_ARRAY), (&bounds, Type::TIMESTAMPTZ_ARRAY)];
    let (pages, found) = explain(relay, LOOK, &parameters).await;
    assert_eq!(found, 1, "only order-paid can go");
    assert!(pages < PAGES, "looking touches {pages} pages");
    let (pages, found) = explain(relay, UNCLAIMED, &[(&tiers, Type::TEXT_ARRAY)]).await;
    assert_eq!(found, 1, "{TYPO}");
    assert!(pages < PAGES, "looking for unknown tiers touches {pages} pages");
}

/// Runs a statement under EXPLAIN and rolls it back: pages touched, and rows found.
async fn explain(db: &Db, statement: &str, parameters: &[(&(dyn ToSql + Sync), Type)]) -> (i64, i64) {
    db.batch_execute("begin").await.unwrap();
    let explain = format!("explain (analyze, buffers, timing off, format json) {statement}");
    let plan: Value = db.query_typed(&explain, parameters).await.unwrap()[0].get(0);
    db.batch_execute("rollback").await.unwrap();
    let top = &plan[0]["Plan"];
    // PostgreSQL 18 counts rows in hundredths.
    let number = |name: &str| {
        let text = top[name].to_string();
        text.split('.').next().and_then(|n| n.parse::<i64>().ok()).unwrap_or_else(|| panic!("{name} in {plan:#}"))
    };
    let pages = number("Shared Hit Blocks") + number("Shared Read Blocks");
    println!("{pages} pages for {} rows: {}", number("Actual Rows"), statement.lines().next().unwrap_or_default());
    (pages, number("Actual Rows"))
}

fn an_unknown_tier_is_named_everywhere(daemon: &Daemon) {
    let hint = "did the application mean 'order-paid'?";
    let line = daemon.wait_log(hint, secs(10));
    assert!(line.contains(TYPO), "{line}");
    let (code, detail) = daemon.get("/readyz").unwrap();
    assert_eq!(code, 200, "a typo of one producer is no reason to be unready");
    assert!(detail.contains(TYPO) && detail.contains(hint), "{detail}");
    assert_eq!(daemon.metric(&format!("duebox_unknown_tier{{tier=\"{TYPO}\"}}")), Some(1.0));
    let (code, status, _) = run_cli(&["status", "--config", daemon.config().to_str().unwrap()]);
    assert_eq!(code, 1, "{status}");
    let verdict = status.lines().next().unwrap_or_default();
    assert!(verdict.contains(TYPO) && verdict.contains(hint), "worse than a queue without consumers: {status}");
    assert!(status.contains("tier order-new"), "{status}");
}
