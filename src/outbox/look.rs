//! Looking without locking: which tiers have due rows, when the next one is, which tiers nobody here claims.

use super::connect::Db;
use super::error::Error;
use super::scan::{End, Scan};
use crate::relay::{Look, Unclaimed};
use std::time::{Instant, SystemTime};
use tokio_postgres::types::{ToSql, Type};

const LOOK: &str = include_str!("../../sql/look.sql");
const UNCLAIMED: &str = include_str!("../../sql/unclaimed.sql");

/// Looks at the first pending row of each of `tiers`.
pub(super) async fn look(db: &Db, scan: &Scan, tiers: &[String]) -> Result<Look, Error> {
    const WHAT: &str = "look for rows that are due";
    let started = Instant::now();
    let bounds: Vec<Option<SystemTime>> = tiers.iter().map(|tier| scan.bound(tier, started)).collect();
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&tiers, Type::TEXT_ARRAY), (&bounds, Type::TIMESTAMPTZ_ARRAY)];
    let rows = db.once(WHAT, async |client| client.query_typed(LOOK, &parameters).await).await?;
    let mut look = Look::default();
    for row in rows {
        let tier: String = row.try_get("tier").map_err(Error::statement(WHAT))?;
        let available_at: SystemTime = row.try_get("available_at").map_err(Error::statement(WHAT))?;
        let now: SystemTime = row.try_get("now").map_err(Error::statement(WHAT))?;
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

/// Tiers of pending rows that are not among `claimed`.
pub(super) async fn unclaimed(db: &Db, claimed: &[String]) -> Result<Vec<Unclaimed>, Error> {
    let what = "look for rows of tiers that this relay does not know";
    let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&claimed, Type::TEXT_ARRAY)];
    let rows = db.once(what, async |client| client.query_typed(UNCLAIMED, &parameters).await).await?;
    let read = |row: &tokio_postgres::Row| Ok(Unclaimed { tier: row.try_get("tier")?, due: row.try_get("due")? });
    rows.iter().map(read).collect::<Result<_, _>>().map_err(Error::statement(what))
}
