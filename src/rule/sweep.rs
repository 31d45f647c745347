//! The sweep of one rule: now and then, close the orders that the pipeline missed.

mod missed;
mod once;
mod pages;
mod round;

use super::orders::{self, Orders, Place};
use super::pass::{Pass, Taken};
use super::statements::MANY;
use crate::admin::health::{Health, Part, STALL};
use crate::admin::metrics::Metrics;
use crate::backoff::Backoff;
use crate::config::{Mode, Rule};
use crate::outbox::connect::Db;
use crate::outbox::error::Error;
use crate::stop::Stop;
use missed::{Held, Missed};
use round::{FAILURES, Round};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use missed::holders;
pub use once::{Hears, Told};

/// The sweep of one rule on one relay.
#[derive(Debug)]
pub struct Sweep {
    /// The database.
    pub db: Db,
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

/// How soon a table is tried again that was locked as a whole.
const LOCKED: Duration = Duration::from_secs(5);

/// Why a pass was broken off.
enum Broken {
    Stopped,
    /// Another relay has taken it over, and goes on with it.
    TakenOver,
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
    /// What the last pass found wrong with the rule.
    problem: Option<String>,
    /// The pass is ours, and not through.
    passing: bool,
    /// Another trouble than that was said since.
    troubled: bool,
    /// How many orders are left alone because of `not_before`.
    older: i64,
    /// The last order that was seen while only observing: what comes after it is new.
    seen: Option<Place>,
    /// What was missed so far, where the last pass did not come to the end of the overdue orders.
    begun: Missed,
    /// What stays locked.
    held: Held,
}

impl Sweep {
    /// Sweeps until the stop. An outage is waited out, whatever its length.
    pub async fn run(&self) {
        let pass = Pass::new(&self.db, &self.name, self.rule.every);
        let (mut failures, mut memory) = (0_u32, Memory::default());
        loop {
            let wait = match self.turn(&pass, &mut memory).await {
                Ok(wait) => {
                    failures = 0;
                    wait
                }
                Err(Broken::Stopped) => break,
                // It goes on there, and is waited for.
                Err(Broken::TakenOver) => Duration::ZERO,
                Err(Broken::Failed(error)) => {
                    self.failed(&error, &mut memory);
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

    /// Says what is wrong with the rule, if anything is.
    fn say(&self, problem: Option<&str>) {
        match problem {
            Some(problem) => self.health.problem(&self.part(), problem),
            None => self.health.well(&self.part()),
        }
    }

    /// An outage is no trouble of the rule's: whoever looks for the database says so. A connection that ends in the middle of
    /// a pass, or a statement of it that has no answer, may be, while others have theirs.
    fn failed(&self, error: &Error, memory: &mut Memory) {
        let is_known = matches!(self.health.parts().get(&Part::Postgres), Some(Some(_)));
        let is_outage = is_known || !memory.passing || matches!(error, Error::Connect(_));
        if error.is_away() && is_outage {
            tracing::debug!(rule = self.name, %error, "the sweep waits: {error}");
            self.take_back(memory);
        } else {
            memory.troubled = true;
            self.health.problem(&self.part(), &error.to_string());
        }
    }

    /// Takes back what was said since the last pass, whose own word holds until the next.
    fn take_back(&self, memory: &mut Memory) {
        if std::mem::take(&mut memory.troubled) {
            self.say(memory.problem.as_deref());
        }
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
        memory.passing = false;
        if let Taken::Later { wait, ended } = self.patient(pass.take()).await?? {
            if let Some(ended) = ended {
                self.metrics.rules.passed(&self.name, ended);
            }
            self.take_back(memory);
            // Not the whole wait: whoever has the pass now may be through long before it could be taken over.
            return Ok(wait.clamp(Duration::from_millis(10), every));
        }
        memory.passing = true;
        let told = match self.pass(pass, memory).await {
            Ok(told) => told,
            // A migration, which does not last for a period.
            Err(Broken::Failed(error @ Error::Table { .. })) => {
                memory.problem = Some(error.to_string());
                self.say(memory.problem.as_deref());
                pass.break_off(every).await;
                return Ok(LOCKED.min(every));
            }
            // Tried again at the normal time: the next pass looks at everything anew.
            Err(Broken::Failed(error)) if !error.is_away() => Some(error.to_string()),
            Err(Broken::Stopped) => {
                pass.break_off(every).await;
                return Err(Broken::Stopped);
            }
            Err(broken) => return Err(broken),
        };
        (memory.problem, memory.troubled) = (told, false);
        self.say(memory.problem.as_deref());
        let ended = self.patient(pass.end()).await??.ok_or(Broken::TakenOver)?;
        self.metrics.rules.passed(&self.name, ended);
        Ok(every)
    }

    /// Looks at all overdue orders once, in batches; what is to be said of it.
    async fn pass(&self, pass: &Pass<'_>, memory: &mut Memory) -> Result<Option<String>, Broken> {
        let prepared = self.patient(orders::prepare(&self.db, &self.name, &self.rule)).await?;
        let (orders, findings) = prepared?;
        for note in findings.notes.iter().filter(|note| !memory.notes.contains(note)) {
            tracing::warn!(rule = self.name, "rule {}: {note}", self.name);
        }
        memory.notes = findings.notes;
        let Some(orders) = orders else { return Ok(Some(findings.problems.join("; "))) };
        self.count_older(&orders, memory).await?;
        let round = Round { sweep: self, pass, orders: &orders, hears: &|_| {}, bound: FAILURES };
        if self.rule.mode == Mode::Observe {
            round.observe(memory).await?;
            return Ok(None);
        }
        let missed = round.close(std::mem::take(&mut memory.begun)).await?;
        Ok(self.told(missed, memory))
    }

    /// What is to be said of an order that could not be closed, and of one that stays locked.
    fn told(&self, missed: Missed, memory: &mut Memory) -> Option<String> {
        let (now, told) = (Instant::now(), missed.told(&self.rule.action));
        if missed.rest.is_some() {
            memory.begun = missed;
        } else {
            memory.held.learn(&missed, now);
        }
        let said: Vec<_> = told.into_iter().chain(memory.held.told(&self.rule, now)).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Says how many orders are left alone because of `not_before`, when that has changed.
    async fn count_older(&self, orders: &Orders, memory: &mut Memory) -> Result<(), Broken> {
        let older = self.patient(orders.older(&self.db)).await??;
        if older != memory.older {
            let (rule, more) = (&self.name, if older == MANY { " or more" } else { "" });
            tracing::info!(rule, older, "rule {rule}: {older}{more} order(s) overdue before not_before are left alone");
        }
        memory.older = older;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::connect::Settings;

    #[tokio::test]
    async fn an_outage_is_no_trouble_of_the_rule_and_a_pass_without_answer_is_until_the_database_answers() {
        let settings = Settings {
            url: "postgres://u@127.0.0.1:1/d".into(),
            password: None,
            schema: "duebox".into(),
            connect_timeout: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(1),
        };
        let db = Db::new(settings, 1).unwrap();
        let (health, metrics, stop) = (Arc::<Health>::default(), Arc::default(), Stop::default());
        let (name, rule) = ("unpaid".to_owned(), crate::rule::statements::tests::rule());
        let sweep = Sweep { db, name, rule, batch: 1, health: Arc::clone(&health), metrics, stop };
        let (what, away) = ("close orders", || Error::Connect("refused".into()));
        let silent = || Error::Deadline { what, within: Duration::from_secs(3) };
        let mut memory = Memory { problem: Some("2 orders could not be closed".into()), ..Memory::default() };
        let said = || health.problems().into_iter().map(|(_, reason)| reason).collect::<Vec<_>>();
        sweep.failed(&silent(), &mut memory);
        sweep.failed(&away(), &mut memory);
        assert_eq!(said(), [""; 0], "neither is the rule's");
        memory.passing = true;
        sweep.failed(&silent(), &mut memory);
        assert_eq!(said(), [silent().to_string()]);
        sweep.failed(&away(), &mut memory);
        assert_eq!(said(), ["2 orders could not be closed"], "the word of the last pass");
        health.well(&sweep.part());
        health.problem(&Part::Postgres, "refused");
        sweep.failed(&silent(), &mut memory);
        assert_eq!(said(), ["refused"], "once, and by its own name");
    }
}
