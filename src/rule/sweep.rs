//! The sweep of one rule: now and then, close the orders that the pipeline missed.

mod once;
mod round;

use super::orders::{self, Orders, Place};
use super::pass::{Pass, Taken};
use super::statements::MANY;
use crate::admin::health::{Health, Part, STALL};
use crate::admin::metrics::Metrics;
use crate::backoff::Backoff;
use crate::config::{Mode, Rule};
use crate::outbox::connect::{Pool, Settings};
use crate::outbox::error::Error;
use crate::stop::Stop;
use round::{Missed, Round};
use std::sync::Arc;
use std::time::Duration;

pub use once::{Hears, Told};

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

/// What one pass leaves to the next.
#[derive(Default)]
struct Memory {
    /// What is known to work badly, and was said.
    notes: Vec<String>,
    /// How many orders are left alone because of `not_before`.
    older: i64,
    /// The last order that was seen while only observing: what comes after it is new.
    seen: Option<Place>,
}

impl Sweep {
    /// Sweeps until the stop. An outage is waited out, whatever its length.
    pub async fn run(&self) {
        let pass = Pass::new(&self.pool, &self.settings, &self.name, self.rule.every);
        let (mut failures, mut memory) = (0_u32, Memory::default());
        loop {
            let wait = match self.turn(&pass, &mut memory).await {
                Ok(wait) => {
                    failures = 0;
                    wait
                }
                Err(Broken::Stopped) => break,
                Err(Broken::Failed(error)) => {
                    self.health.problem(&self.part(), &error.to_string());
                    failures = failures.saturating_add(1);
                    Backoff::DATABASE.wait(failures)
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
        self.stop.or(self.health.patient(&self.beat(), STALL, std::pin::pin!(work))).await.ok_or(Broken::Stopped)
    }

    /// One pass, if it is to be had, and how long to wait for the next.
    async fn turn(&self, pass: &Pass<'_>, memory: &mut Memory) -> Result<Duration, Broken> {
        let every = self.rule.every;
        if let Taken::Later { wait, ended } = self.patient(pass.take()).await?? {
            if let Some(ended) = ended {
                self.metrics.rules.passed(&self.name, ended);
            }
            // Not the whole wait: whoever has the pass now may be through long before it could be taken over.
            return Ok(wait.clamp(Duration::from_millis(10), every));
        }
        let missed = match self.pass(pass, memory).await {
            Ok(missed) => missed,
            // Tried again at the normal time: the next pass looks at everything anew.
            Err(Broken::Failed(error)) if !error.is_away() => Missed::all(error.to_string()),
            Err(Broken::Stopped) => {
                pass.break_off(every).await;
                return Err(Broken::Stopped);
            }
            Err(away) => return Err(away),
        };
        match missed.told() {
            Some(problem) => self.health.problem(&self.part(), &problem),
            None => self.health.well(&self.part()),
        }
        // Taken over: it goes on there, and is waited for.
        let Some(ended) = self.patient(pass.end()).await?? else { return Ok(Duration::ZERO) };
        self.metrics.rules.passed(&self.name, ended);
        Ok(every)
    }

    /// Looks at all overdue orders once, in batches.
    async fn pass(&self, pass: &Pass<'_>, memory: &mut Memory) -> Result<Missed, Broken> {
        let prepared = self.patient(orders::prepare(&self.pool, &self.settings, &self.name, &self.rule)).await?;
        let (orders, findings) = prepared?;
        for note in findings.notes.iter().filter(|note| !memory.notes.contains(note)) {
            tracing::warn!(rule = self.name, "rule {}: {note}", self.name);
        }
        memory.notes = findings.notes;
        let Some(orders) = orders else { return Ok(Missed::all(findings.problems.join("; "))) };
        self.count_older(&orders, memory).await?;
        let round = Round { sweep: self, pass, orders: &orders, hears: &|_| {} };
        match self.rule.mode {
            Mode::Enforce => round.close().await,
            Mode::Observe => round.observe(memory).await,
        }
    }

    /// Says how many orders are left alone because of `not_before`, when that has changed.
    async fn count_older(&self, orders: &Orders, memory: &mut Memory) -> Result<(), Broken> {
        let older = self.patient(orders.older(&self.pool, &self.settings)).await??;
        if older != memory.older {
            let (rule, more) = (&self.name, if older == MANY { " or more" } else { "" });
            tracing::info!(rule, older, "rule {rule}: {older}{more} order(s) overdue before not_before are left alone");
        }
        memory.older = older;
        Ok(())
    }
}
