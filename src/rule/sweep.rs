//! The sweep of one rule: now and then, close the orders that the pipeline missed.

use super::close;
use super::closing::{Closed, Closing};
use super::orders::{self, Orders, Place};
use super::pass::Pass;
use super::size::Size;
use crate::admin::health::{Health, Part};
use crate::admin::metrics::{ByRule, Metrics};
use crate::backoff::Backoff;
use crate::config::Rule;
use crate::outbox::connect::{Pool, Settings, within};
use crate::outbox::error::Error;
use crate::stop::Stop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who closed, in events, the log and metrics.
const BY: &str = "sweep";

/// How often a waiting sweep shows that it is alive, and the bound by which it must have done so.
const BEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How long to wait after the database failed.
const AWAY: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// Bound on closing that we keep ourselves: Postgres keeps a second, this catches one that no longer answers at all.
const CLOSE: Duration = Duration::from_secs(3);

/// Rest between batches, for those who wait for a lock or a disk.
const PAUSE: Duration = Duration::from_millis(20);

/// While orders are closed one by one the pass is refreshed this often; it is taken over after 30 s.
const KEEP: Duration = Duration::from_secs(5);

/// Orders of a pass that are named when they cannot be closed; the rest are counted.
const NAMED: usize = 10;

/// The sweep of one rule on one relay.
#[derive(Debug)]
pub struct Sweep {
    /// Connections to the database.
    pub pool: Pool,
    /// How they were made.
    pub settings: Settings,
    /// The rule's name.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// Most orders of one transaction.
    pub batch: usize,
    /// Where trouble and signs of life go.
    pub health: Arc<Health>,
    /// Where closed orders are counted.
    pub metrics: Arc<Metrics>,
    /// Ends it.
    pub stop: Stop,
}

/// Why a pass was broken off.
enum Broken {
    Stopped,
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a pass could not do.
#[derive(Default)]
struct Missed {
    /// Why no order could be looked at.
    problem: Option<String>,
    /// Orders that could not be closed.
    count: usize,
    /// The first of them, with the reason.
    first: String,
}

impl Sweep {
    /// Sweeps until the stop. An outage is waited out, whatever its length.
    pub async fn run(&self) {
        let pass = Pass::new(&self.pool, &self.settings, &self.name, self.rule.every);
        let (mut failures, mut notes) = (0_u32, Vec::new());
        loop {
            let wait = match self.turn(&pass, &mut notes).await {
                Ok(wait) => {
                    failures = 0;
                    wait
                }
                Err(Broken::Stopped) => break,
                Err(Broken::Failed(error)) => {
                    self.health.problem(&self.part(), &error.to_string());
                    failures = failures.saturating_add(1);
                    AWAY.wait(failures)
                }
            };
            if self.patient(tokio::time::sleep(wait)).await.is_err() {
                break;
            }
        }
        self.health.retire(&self.beat());
    }

    fn part(&self) -> Part {
        Part::Rule(self.name.clone())
    }

    fn beat(&self) -> String {
        format!("sweep of rule {}", self.name)
    }

    /// Waits for `work` or the stop, showing signs of life meanwhile.
    async fn patient<T>(&self, work: impl Future<Output = T>) -> Result<T, Broken> {
        let mut work = std::pin::pin!(work);
        loop {
            self.health.beat(&self.beat(), BEAT.1);
            match self.stop.or(tokio::time::timeout(BEAT.0, &mut work)).await {
                None => return Err(Broken::Stopped),
                Some(Ok(done)) => return Ok(done),
                Some(Err(_still_waiting)) => {}
            }
        }
    }

    /// One pass, if it is to be had, and how long to wait for the next.
    async fn turn(&self, pass: &Pass<'_>, notes: &mut Vec<String>) -> Result<Duration, Broken> {
        let every = self.rule.every;
        if let Some(wait) = self.patient(pass.take()).await?? {
            // Not the whole wait: whoever has the pass now may be through long before it could be taken over.
            return Ok(wait.clamp(Duration::from_millis(10), every));
        }
        let missed = match self.pass(pass, notes).await {
            Ok(missed) => missed,
            // Tried again at the normal time: the next pass looks at everything anew.
            Err(Broken::Failed(error)) if !error.is_away() => {
                Missed { problem: Some(error.to_string()), ..Missed::default() }
            }
            Err(Broken::Stopped) => {
                // Best effort within what a stop may take; without it the pass is free after 30 s.
                drop(tokio::time::timeout(Duration::from_secs(1), pass.break_off()).await);
                return Err(Broken::Stopped);
            }
            Err(away) => return Err(away),
        };
        self.report(&missed);
        self.patient(pass.end()).await??;
        Ok(every)
    }

    fn report(&self, missed: &Missed) {
        match (&missed.problem, missed.count) {
            (Some(problem), _) => self.health.problem(&self.part(), problem),
            (None, 0) => self.health.well(&self.part()),
            (None, count) => {
                let reason = format!("{count} order(s) could not be closed, the others were; first {}", missed.first);
                self.health.problem(&self.part(), &reason);
            }
        }
    }

    /// Looks at all overdue orders once, in batches.
    async fn pass(&self, pass: &Pass<'_>, notes: &mut Vec<String>) -> Result<Missed, Broken> {
        let prepared = self.patient(orders::prepare(&self.pool, &self.settings, &self.name, &self.rule)).await?;
        let (orders, findings) = prepared?;
        for note in findings.notes.iter().filter(|note| !notes.contains(note)) {
            tracing::warn!(rule = self.name, "rule {}: {note}", self.name);
        }
        *notes = findings.notes;
        let Some(orders) = orders else {
            return Ok(Missed { problem: Some(findings.problems.join("; ")), ..Missed::default() });
        };
        let (mut missed, mut size, mut place) = (Missed::default(), Size::new(self.batch), None::<Place>);
        loop {
            if !self.patient(pass.keep()).await?? {
                tracing::debug!(rule = self.name, "another relay has taken over the sweep of rule {}", self.name);
                return Ok(missed);
            }
            let find = orders.find(&self.pool, &self.settings, place.as_ref(), size.rows);
            let found = self.patient(find).await??;
            let full = found.len() == size.rows;
            place = found.last().cloned();
            let ids: Vec<String> = found.into_iter().map(|(_, id)| id).collect();
            if !ids.is_empty() {
                self.batch(pass, &orders, &ids, &mut size, &mut missed).await?;
            }
            if !full {
                return Ok(missed);
            }
            self.patient(tokio::time::sleep(PAUSE)).await?;
        }
    }

    /// Closes a batch together, or one by one when that fails.
    async fn batch(
        &self,
        pass: &Pass<'_>,
        orders: &Orders,
        ids: &[String],
        size: &mut Size,
        missed: &mut Missed,
    ) -> Result<(), Broken> {
        let started = Instant::now();
        let closed = self.close(orders, ids).await;
        size.learn(started.elapsed());
        match closed {
            Err(Broken::Failed(error)) if !error.is_away() => {
                tracing::debug!(rule = self.name, %error, "a batch of rule {} goes order by order", self.name);
            }
            closed => return closed,
        }
        let mut kept = Instant::now();
        for id in ids {
            if kept.elapsed() >= KEEP {
                kept = Instant::now();
                // Whoever has taken over finds the same orders; the next batch stops this pass.
                self.patient(pass.keep()).await??;
            }
            match self.close(orders, std::slice::from_ref(id)).await {
                Err(Broken::Failed(error)) if !error.is_away() => missed.order(&self.name, id, &error),
                closed => closed?,
            }
        }
        Ok(())
    }

    /// Closes those of `ids` that are to be closed, in one transaction, and tells of each.
    async fn close(&self, orders: &Orders, ids: &[String]) -> Result<(), Broken> {
        let transaction = self.patient(close::begin(&self.pool, &self.settings)).await??;
        // Not given up at the stop: what was closed is to be told.
        for (_, closing) in within("close orders", CLOSE, close::some(transaction, orders, ids, BY)).await? {
            if let Closing::Closed(closed) = closing {
                self.tell(&closed);
            }
        }
        Ok(())
    }

    fn tell(&self, closed: &Closed) {
        let Closed { id, was, message_id, written, .. } = closed;
        let (rule, to) = (&self.name, &self.rule.to);
        let message_id = message_id.map(tracing::field::display);
        self.metrics.rule_closed.get_or_create(&ByRule { rule: rule.clone(), by: BY }).inc();
        tracing::info!(order = id, rule, from = was, to, by = BY, message_id, "rule {rule}: order {id} closed");
        if message_id.is_some() && !written {
            // Closed before, opened again with the same due, and closed again.
            tracing::warn!(
                order = id,
                rule,
                message_id,
                "rule {rule}: the event of order {id} was in the outbox already"
            );
        }
    }
}

impl Missed {
    fn order(&mut self, rule: &str, id: &str, error: &Error) {
        self.count += 1;
        if self.count == 1 {
            self.first = format!("{id}: {error}");
        }
        if error.is_conflict() {
            tracing::debug!(order = id, rule, %error, "rule {rule}: order {id} is left to the next pass");
        } else if self.count <= NAMED {
            tracing::warn!(order = id, rule, by = BY, %error, "rule {rule}: order {id} could not be closed: {error}");
        }
    }
}
