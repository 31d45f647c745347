//! The small loops that look at the database for the daemon itself: is the schema good, what waits, what was declared.

use super::Ended;
use super::build::Parts;
use super::tasks::TaskEnd;
use crate::admin::health::Part;
use crate::admin::metrics::Backlog;
use crate::admin::pauses::Paused;
use crate::config::Topology;
use crate::outbox::connect::Settings;
use crate::outbox::error::Error;
use crate::outbox::pauses::{self, Pause, What};
use crate::outbox::{count, inspect};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long nobody may have heard from the database before it is asked for a sign of life.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// How long a count may take before what was known is no longer shown.
const UNKNOWN_AFTER: Duration = Duration::from_secs(10);

/// How long to wait before the record of queues is tried again.
const RECORD_AGAIN: Duration = Duration::from_secs(5);

/// How often the pauses are read for those who ask for them.
const PAUSES_EVERY: Duration = Duration::from_secs(1);

/// What somebody asks for who reads a page.
#[derive(PartialEq, Eq)]
enum Asked {
    Backlog,
    Pauses,
    Nothing,
}

/// Waits until the database can be asked, and opens the gate if its schema is good.
pub(super) async fn check_schema(parts: &Parts, open: &watch::Sender<bool>) -> TaskEnd {
    loop {
        match parts.stop.or(inspect::inspect(&parts.db)).await {
            None => return Ok(()),
            Some(Ok(found)) if found.problems.is_empty() => {
                tracing::info!("{}", found.schema);
                if let Some(note) = found.note(parts.config.outbox.wake) {
                    tracing::warn!("{note}");
                }
                open.send_replace(true);
                // The gate stays open as long as its sender lives.
                parts.stop.wait().await;
                return Ok(());
            }
            Some(Ok(found)) => return Err(Ended::Misconfigured(found.problems.join("\n"))),
            Some(Err(error)) => {
                parts.metrics.set_up("postgres", false);
                parts.health.problem(&Part::Postgres, &error.to_string());
            }
        }
        if parts.stop.or(tokio::time::sleep(Duration::from_secs(1))).await.is_none() {
            return Ok(());
        }
    }
}

/// Counts what waits, when somebody asks; unknown is absent. Between, sees that the database is there when nobody else
/// does: the workers look only while the broker is there, and may sleep for long.
pub(super) async fn count_backlog(parts: &Parts) -> TaskEnd {
    let mut away = false;
    let (mut rest, mut read) = (Instant::now(), None::<Instant>);
    loop {
        parts.health.beat("backlog count", stall(parts.db.settings()));
        let asked = async {
            tokio::select! {
                () = parts.fresh.asked() => Asked::Backlog,
                () = parts.pauses.asked() => Asked::Pauses,
                () = tokio::time::sleep(PROBE_EVERY) => Asked::Nothing,
            }
        };
        let Some(asked) = parts.stop.or(asked).await else { return Ok(()) };
        let seen = if asked == Asked::Backlog && Instant::now() >= rest {
            let started = Instant::now();
            let Some(counted) = Box::pin(parts.stop.or(count(parts))).await else { return Ok(()) };
            // At most a twentieth of the time: a count walks every pending row.
            rest = Instant::now() + started.elapsed() * 20;
            Some(counted)
        } else if asked == Asked::Pauses && read.is_none_or(|at| at.elapsed() >= PAUSES_EVERY) {
            read = Some(Instant::now());
            Box::pin(parts.stop.or(read_pauses(parts))).await
        } else if parts.health.worked_within(&Part::Postgres, PROBE_EVERY) {
            None
        } else {
            parts.stop.or(count::probe(&parts.db)).await
        };
        match asked {
            Asked::Backlog => parts.fresh.counted(),
            Asked::Pauses => parts.pauses.counted(),
            Asked::Nothing => {}
        }
        if let Some(seen) = seen {
            away = note_database(parts, seen.err().as_ref(), away);
        }
    }
}

/// How long that may be without a sign of life: two statements, each of which waits for the pool, then for a connection
/// to whichever server takes writes, then for its answer. On top comes a machine under load.
fn stall(settings: &Settings) -> Duration {
    let statement = settings.patience() * 2 + settings.reach();
    PROBE_EVERY + statement * 2 + Duration::from_secs(60)
}

/// Counts. What the database does not tell in time is unknown.
async fn count(parts: &Parts) -> Result<(), Error> {
    let mut counting = std::pin::pin!(count::backlog(&parts.db));
    let counted = match tokio::time::timeout(UNKNOWN_AFTER, &mut counting).await {
        Ok(counted) => counted,
        Err(_slow) => {
            parts.metrics.set_backlog(None);
            counting.await
        }
    };
    let counted = counted.map(|rows| Backlog::complete(&rows, parts.config.tiers.keys()));
    parts.metrics.set_backlog(counted.as_deref().ok());
    let usage = count::notification_queue(&parts.db).await;
    parts.metrics.notification_queue.set(*usage.as_ref().unwrap_or(&f64::NAN));
    drop(read_pauses(parts).await);
    counted.map(drop)
}

async fn read_pauses(parts: &Parts) -> Result<(), Error> {
    let pauses = pauses::list(&parts.db).await;
    show_pauses(parts, pauses.as_ref().ok().cloned());
    pauses.map(drop)
}

fn show_pauses(parts: &Parts, pauses: Option<Vec<Pause>>) {
    let (tiers, rules) = (parts.config.tiers.keys().cloned(), parts.config.rules.keys().cloned());
    let known = [What::Relay, What::Closer, What::Sweep].into_iter();
    let known = known.chain(tiers.map(What::Tier)).chain(rules.map(What::Rule)).map(|what| what.to_string());
    let shown = |pause: &Pause| Paused {
        what: pause.what.clone(),
        since: pause.since.clone(),
        by: pause.by(),
        reason: pause.reason.clone(),
    };
    parts.health.set_pauses(pauses.as_ref().map(|pauses| pauses.iter().map(shown).collect()));
    let paused = pauses.map(|pauses| pauses.into_iter().map(|pause| pause.what));
    parts.metrics.set_paused(known, paused);
}

/// The workers may have another trouble with the database: this takes back only its own word. Returns whether it is away.
fn note_database(parts: &Parts, failed: Option<&Error>, was_away: bool) -> bool {
    match failed {
        Some(error) if error.is_away() => {
            parts.metrics.set_up("postgres", false);
            parts.metrics.set_backlog(None);
            show_pauses(parts, None);
            parts.health.problem(&Part::Postgres, &error.to_string());
            true
        }
        Some(_) => was_away,
        None => {
            if was_away {
                parts.metrics.set_up("postgres", true);
                parts.health.well(&Part::Postgres);
            }
            false
        }
    }
}

/// Remembers which delay queues were declared. Those of the user's are nobody's to delete.
pub(super) async fn record_queues(parts: &Parts) -> TaskEnd {
    if parts.config.rabbitmq.topology != Topology::Declare {
        parts.stop.wait().await;
        return Ok(());
    }
    let mut declared = parts.broker.shared.declared.subscribe();
    loop {
        let names: Vec<String> = declared.borrow_and_update().iter().cloned().collect();
        let turn = async {
            let recorded = match names.is_empty() {
                true => Ok(()),
                false => count::record_queues(&parts.db, &names).await,
            };
            match recorded {
                Ok(()) => drop(declared.changed().await),
                Err(_away) => tokio::time::sleep(RECORD_AGAIN).await,
            }
        };
        // A frozen database is no reason to wait at the stop: the names are written down again at the next start.
        if parts.stop.or(turn).await.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_servers_that_are_all_away_are_an_outage_and_no_stall() {
        let (connect_timeout, statement_timeout) = (Duration::from_secs(300), Duration::from_secs(10));
        let (url, schema) = ("host=a,b,c,d".into(), "duebox".to_owned());
        let settings = Settings { url, password: None, schema, connect_timeout, statement_timeout };
        assert!(stall(&settings) > connect_timeout * 8, "both statements try all four");
    }
}
