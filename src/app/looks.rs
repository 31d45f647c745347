//! The small loops that look at the database for the daemon itself: is the schema good, what waits, what was declared.

use super::build::Parts;
use super::{Ended, TaskEnd};
use crate::admin::health::Part;
use crate::admin::metrics::Backlog;
use crate::outbox::error::Error;
use crate::outbox::{count, inspect};
use std::time::Duration;
use tokio::sync::watch;

/// How often the backlog is counted, at the least; a slow count is made less often.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Waits until the database can be asked, and opens the gate if its schema is good.
pub(super) async fn check_schema(parts: &Parts, open: &watch::Sender<bool>) -> TaskEnd {
    loop {
        match parts.stop.or(inspect::inspect(&parts.pool, &parts.settings)).await {
            None => return Ok(()),
            Some(Ok(found)) if found.problems.is_empty() => {
                tracing::info!("{}", found.schema);
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

/// Counts what waits; unknown is absent.
pub(super) async fn count_backlog(parts: &Parts) -> TaskEnd {
    let mut away = false;
    loop {
        let started = std::time::Instant::now();
        let Some(counted) = parts.stop.or(count::backlog(&parts.pool, &parts.settings)).await else { return Ok(()) };
        let counted = counted.map(|rows| Backlog::complete(&rows, parts.config.tiers.keys()));
        parts.metrics.set_backlog(counted.as_deref().ok());
        away = note_database(parts, counted.err().as_ref(), away);
        // At most a twentieth of the time: a count walks every pending row.
        let wait = COUNT_EVERY.max(started.elapsed() * 20);
        if parts.stop.or(tokio::time::sleep(wait)).await.is_none() {
            return Ok(());
        }
    }
}

/// The workers look only while the broker is there, and may sleep for long: the count notices what they do not.
/// It takes back only its own word, for they may have another trouble with the database. Returns whether it is away.
fn note_database(parts: &Parts, failed: Option<&Error>, was_away: bool) -> bool {
    match failed {
        Some(error) if error.is_away() => {
            parts.metrics.set_up("postgres", false);
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

/// Remembers which delay queues were declared.
pub(super) async fn record_queues(parts: &Parts) -> TaskEnd {
    let mut declared = parts.broker.shared.declared.subscribe();
    loop {
        let names: Vec<String> = declared.borrow_and_update().iter().cloned().collect();
        let recorded = match names.is_empty() {
            true => Ok(()),
            false => count::record_queues(&parts.pool, &parts.settings, &names).await,
        };
        let next = async {
            match recorded {
                Ok(()) => drop(declared.changed().await),
                Err(_away) => tokio::time::sleep(COUNT_EVERY).await,
            }
        };
        if parts.stop.or(next).await.is_none() {
            return Ok(());
        }
    }
}
