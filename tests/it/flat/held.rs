//! Rows that are held until later are not read until they are due. `benches/held.sh` does it with a million.

use super::{BACKLOG, CLAIM, LOOK, UNCLAIMED, explain};
use crate::support::db::Row;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use std::time::{Instant, SystemTime};
use tokio_postgres::types::{ToSql, Type};

/// Due from tomorrow on, one a second.
const ROWS: &str = "insert into duebox.outbox (tier, due_at, payload) \
    select 'later', now() + interval '1 day' + i * interval '1 s', '{}' from generate_series(1, $1::bigint) as i";

/// What a claim or a look may touch, whatever is held.
const PAGES: i64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn held_rows_are_not_read_before_they_are_due_however_many_they_are() {
    let rows: i64 = std::env::var("HELD_ROWS").map_or(20_000, |text| text.parse().unwrap());
    let rig = Rig::alone("held_rows");
    let role = rig.migrated();
    let db = rig.db().await;
    let tiers = "[tier.later]\nkind = \"hold\"\ntarget = { queue = \"due\" }\n";
    let mut daemon = rig.daemon(&role, tiers);
    let begun = Instant::now();
    db.execute(ROWS, &[&rows]).await.unwrap();
    let patience = secs(30 + rows.unsigned_abs() / 1_000);
    wait_until(patience, async || db.count("available_at <= now()").await == 0).await;
    println!("held {rows} rows within {:.1} s", begun.elapsed().as_secs_f64());
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(15)), 0);
    let relay = rig.db_as(&role).await;
    relay.batch_execute("set search_path = duebox, pg_temp").await.unwrap();
    let (claim, ..) = pages(&relay, 0).await;
    println!("held before any vacuum: a claim touches {claim} pages");
    // As autovacuum does it within minutes of so many changes.
    db.batch_execute("vacuum analyze duebox.outbox").await.unwrap();
    db.insert(&Row { due_in: Some(-1.0), ..Row::new("later").key("due") }).await;
    let (claim, look, unclaimed) = pages(&relay, 1).await;
    println!("held: a claim touches {claim} pages, a look {look}, one for unknown tiers {unclaimed}");
    let begun = Instant::now();
    let (counted, _) = explain(&relay, BACKLOG, &[]).await;
    println!("held: counting them takes {:.0} ms and {counted} pages", begun.elapsed().as_secs_f64() * 1_000.0);
    for pages in [claim, look, unclaimed] {
        assert!(pages < PAGES, "{pages} pages with {rows} rows held");
    }
}

/// Pages of a claim that finds so many rows, of a look, and of a look for unknown tiers.
async fn pages(relay: &crate::support::db::Db, found: i64) -> (i64, i64, i64) {
    let none: Option<SystemTime> = None;
    let claim: [(&(dyn ToSql + Sync), Type); 3] =
        [(&"later", Type::TEXT), (&none, Type::TIMESTAMPTZ), (&500_i64, Type::INT8)];
    let (claim, rows) = explain(relay, &format!("declare claim no scroll cursor for {CLAIM}"), &claim).await;
    assert_eq!(rows, found, "rows that are due");
    let (tiers, bounds) = (vec!["later"], vec![none]);
    let look: [(&(dyn ToSql + Sync), Type); 2] = [(&tiers, Type::TEXT_ARRAY), (&bounds, Type::TIMESTAMPTZ_ARRAY)];
    let (look, _) = explain(relay, LOOK, &look).await;
    let (unclaimed, _) = explain(relay, UNCLAIMED, &[(&tiers, Type::TEXT_ARRAY)]).await;
    (claim, look, unclaimed)
}
