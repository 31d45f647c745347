//! Looking without locking: which tiers have due rows, when the next one is, which tiers nobody here knows.

use super::connect::{Settings, once};
use super::error::Error;
use super::scan::{End, Scan};
use crate::relay::Look;
use deadpool_postgres::Pool;
use std::time::{Instant, SystemTime};
use tokio_postgres::types::{ToSql, Type};

const LOOK: &str = include_str!("../../sql/look.sql");
const UNKNOWN_TIERS: &str = include_str!("../../sql/unknown_tiers.sql");

/// Looks at the first pending row of each of `tiers`.
pub(super) async fn look(pool: &Pool, settings: &Settings, scan: &Scan, tiers: &[String]) -> Result<Look, Error> {
    let started = Instant::now();
    let bounds: Vec<Option<SystemTime>> = tiers.iter().map(|tier| scan.bound(tier, started)).collect();
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&tiers, Type::TEXT_ARRAY), (&bounds, Type::TIMESTAMPTZ_ARRAY)];
    let rows = once(pool, settings, "look", async |client| client.query_typed(LOOK, &parameters).await).await?;
    let mut look = Look::default();
    for row in rows {
        let tier: String = row.try_get("tier").map_err(Error::statement("look"))?;
        let available_at: SystemTime = row.try_get("available_at").map_err(Error::statement("look"))?;
        let now: SystemTime = row.try_get("now").map_err(Error::statement("look"))?;
        match available_at.duration_since(now) {
            Ok(ahead) if !ahead.is_zero() => look.next = Some(look.next.map_or(ahead, |next| next.min(ahead))),
            _ => look.due.push(tier),
        }
    }
    // A tier that was looked at in full and has nothing due hides nothing below a bound.
    for (tier, bound) in tiers.iter().zip(&bounds) {
        if !look.due.contains(tier) {
            let end = End { took: started.elapsed(), last: None, short: true };
            scan.done(tier, *bound, started, end);
        }
    }
    if let Some(hidden) = scan.hidden_until(tiers, Instant::now()) {
        look.next = Some(look.next.map_or(hidden, |next| next.min(hidden)));
    }
    Ok(look)
}

/// Tiers of pending rows that are not among `known`.
pub(super) async fn unknown_tiers(pool: &Pool, settings: &Settings, known: &[String]) -> Result<Vec<String>, Error> {
    let what = "look for unknown tiers";
    let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&known, Type::TEXT_ARRAY)];
    let rows = once(pool, settings, what, async |client| client.query_typed(UNKNOWN_TIERS, &parameters).await).await?;
    rows.iter().map(|row| row.try_get(0).map_err(Error::statement(what))).collect()
}
