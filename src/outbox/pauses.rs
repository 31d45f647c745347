//! Pauses: kept in the database, so that they hold for all relays and over restarts.
//!
//! Nobody is told of one: every claim and every close reads them in its own transaction.

use super::connect::Db;
use super::error::Error;
use super::rights::{self, Needs};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const PAUSE: &str = include_str!("../../sql/pause.sql");
const RESUME: &str = include_str!("../../sql/resume.sql");
const PAUSES: &str = include_str!("../../sql/pauses.sql");

const NEEDS: Needs = Needs { tables: &[("state", "select"), ("state", "insert"), ("state", "delete")], rings: true };

/// What can be paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Every claim.
    Relay,
    /// Every closer.
    Closer,
    /// Every sweep.
    Sweep,
    /// The rows of one tier.
    Tier(String),
    /// One rule, in sweep and closer.
    Rule(String),
}

impl What {
    /// Its name in `state`, after `pause.`.
    fn name(&self) -> String {
        self.to_string().replacen(' ', ".", 1)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relay => write!(f, "relay"),
            Self::Closer => write!(f, "closer"),
            Self::Sweep => write!(f, "sweep"),
            Self::Tier(name) => write!(f, "tier {name}"),
            Self::Rule(name) => write!(f, "rule {name}"),
        }
    }
}

/// A pause in force, or one that was ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pause {
    /// What is paused, as `duebox resume` takes it: `relay`, `tier NAME`, ...
    pub what: String,
    /// Since when, in UTC.
    pub since: Option<String>,
    /// For how many seconds.
    pub age_seconds: f64,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// The database's role.
    pub role: Option<String>,
    /// The login of whoever did it.
    pub login: Option<String>,
    /// The host where they did it.
    pub host: Option<String>,
}

impl Pause {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let name: String = row.try_get("name")?;
        Ok(Self {
            what: name.replacen('.', " ", 1),
            since: row.try_get("since")?,
            age_seconds: row.try_get("age")?,
            reason: row.try_get("reason")?,
            role: row.try_get("role")?,
            login: row.try_get("login")?,
            host: row.try_get("host")?,
        })
    }

    /// For how long.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::try_from_secs_f64(self.age_seconds).unwrap_or_default()
    }

    /// By whom, as far as it is known: login and host, and the database's role.
    #[must_use]
    pub fn by(&self) -> Option<String> {
        let person = match (&self.login, &self.host) {
            (Some(login), Some(host)) => Some(format!("{login}@{host}")),
            (Some(one), None) => Some(one.clone()),
            (None, Some(host)) => Some(format!("somebody on {host}")),
            (None, None) => None,
        };
        match (person, &self.role) {
            (Some(person), Some(role)) => Some(format!("{person} as {role}")),
            (person, role) => person.or_else(|| role.clone()),
        }
    }

    /// Whether it is the pause of this.
    #[must_use]
    pub fn is_of(&self, what: &What) -> bool {
        self.what == what.to_string()
    }
}

/// Pauses something. False: it was paused already, and stays so with its time and reason.
///
/// # Errors
/// Postgres cannot be asked, or the role may not.
pub async fn pause(
    db: &Db,
    what: &What,
    reason: Option<&str>,
    (login, host): (Option<&str>, Option<&str>),
) -> Result<bool, Error> {
    let name = what.name();
    let run = db.once("pause", async |client| {
        let texts = [(&reason as _, Type::TEXT), (&login as _, Type::TEXT), (&host as _, Type::TEXT)];
        let [reason, login, host] = texts;
        client.execute_typed(PAUSE, &[(&name, Type::TEXT), reason, login, host]).await
    });
    match run.await {
        Ok(rows) => Ok(rows > 0),
        Err(error) => Err(rights::explain(db, NEEDS, error).await),
    }
}

/// Ends the pause of `what`, or of everything, and rings; those that were ended.
///
/// # Errors
/// Postgres cannot be asked, or the role may not.
pub async fn resume(db: &Db, what: Option<&What>) -> Result<Vec<Pause>, Error> {
    let names = what.map(|what| vec![what.name()]);
    let run = db.once("resume", async |client| client.query_typed(RESUME, &[(&names, Type::TEXT_ARRAY)]).await);
    read(db, "resume", run.await).await
}

/// The pauses in force.
///
/// # Errors
/// Postgres cannot be asked, or the role may not.
pub async fn list(db: &Db) -> Result<Vec<Pause>, Error> {
    let what = "read the pauses";
    let run = db.once(what, async |client| client.query_typed(PAUSES, &[]).await);
    read(db, what, run.await).await
}

async fn read(db: &Db, what: &'static str, rows: Result<Vec<Row>, Error>) -> Result<Vec<Pause>, Error> {
    match rows {
        Ok(rows) => rows.iter().map(|row| Pause::read(row).map_err(Error::statement(what))).collect(),
        Err(error) => Err(rights::explain(db, NEEDS, error).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_that_claims_and_closes_read() {
        let named = [
            (What::Relay, "relay"),
            (What::Sweep, "sweep"),
            (What::Tier("order-30m".into()), "tier.order-30m"),
            (What::Rule("a b.c".into()), "rule.a b.c"),
        ];
        for (what, name) in named {
            assert_eq!(what.name(), name);
            assert_eq!(name.replacen('.', " ", 1), what.to_string());
        }
    }
}
