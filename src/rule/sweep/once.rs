//! One pass now, for whoever asks for it in the foreground.

use super::missed::Missed;
use super::pages::Pages;
use super::round::Round;
use super::{Broken, Sweep};
use crate::config::Mode;
use crate::outbox::error::Error;
use crate::rule::closing::Closing;
use crate::rule::orders::{self, Orders};
use crate::rule::pass::{Pass, Taken};
use std::time::Duration;

/// How often it is looked whether another relay's pass is over.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Said of a pass that was not to go on.
const STOPPED: &str = "stopped before its end: the next sweep finds what is left";

/// Said of a pass that another relay has in its hands now.
const TAKEN_OVER: &str = "another relay has taken over the pass: this one was silent for too long";

/// What a pass tells while it goes on.
#[derive(Debug)]
pub enum Told<'a> {
    /// Another relay has the pass; it is waited for.
    Waits,
    /// The rule works, but not well: so many things are to be said of that.
    Notes(usize),
    /// What became of an order.
    Order(&'a str, &'a Closing),
    /// An order could not be closed.
    Failed(&'a str, &'a Error),
    /// An order would be closed.
    Overdue(&'a str),
}

/// Whoever hears it.
pub type Hears<'a> = &'a (dyn Fn(Told<'_>) + Sync);

impl Sweep {
    /// One pass from beginning to end, whenever the last one was; never beside another. What kept it from closing orders.
    ///
    /// `dry`, and by a rule that only observes, nothing is changed. The stop ends it after the batch in hand; killed, the pass
    /// is free for others after 30 s.
    ///
    /// # Errors
    /// Postgres cannot be asked.
    pub async fn once(&self, dry: bool, hears: Hears<'_>) -> Result<Option<String>, Error> {
        match self.foreground(dry, hears).await {
            Ok(problem) => Ok(problem),
            Err(Broken::Failed(error)) => Err(error),
            Err(Broken::Stopped) => Ok(Some(STOPPED.to_owned())),
            Err(Broken::TakenOver) => Ok(Some(TAKEN_OVER.to_owned())),
        }
    }

    async fn foreground(&self, dry: bool, hears: Hears<'_>) -> Result<Option<String>, Broken> {
        let prepared = orders::prepare(&self.db, &self.name, &self.rule);
        let (orders, findings) = self.patient(prepared).await??;
        if !findings.notes.is_empty() {
            hears(Told::Notes(findings.notes.len()));
        }
        let Some(orders) = orders else { return Ok(Some(findings.problems.join("; "))) };
        if dry || self.rule.mode == Mode::Observe {
            self.look(&orders, hears).await?;
            return Ok(None);
        }
        // No period: the pass may be taken as soon as nobody has it.
        let pass = Pass::new(&self.db, &self.name, Duration::ZERO);
        self.wait_for(&pass, hears).await?;
        // Nobody would go on behind a bound.
        let round = Round { sweep: self, pass: &pass, orders: &orders, hears, bound: usize::MAX };
        let missed = match round.close(Missed::default()).await {
            Ok(missed) => missed,
            Err(broken) => {
                pass.break_off(self.rule.every).await;
                return Err(broken);
            }
        };
        pass.end().await?.ok_or(Broken::TakenOver)?;
        Ok(missed.told(&self.rule.action))
    }

    async fn wait_for(&self, pass: &Pass<'_>, hears: Hears<'_>) -> Result<(), Broken> {
        let mut told = false;
        while let Taken::Later { wait, .. } = pass.take().await? {
            if !std::mem::replace(&mut told, true) {
                hears(Told::Waits);
            }
            self.patient(tokio::time::sleep(wait.clamp(LOOK.0, LOOK.1))).await?;
        }
        Ok(())
    }

    /// Names what would be closed.
    async fn look(&self, orders: &Orders, hears: Hears<'_>) -> Result<(), Broken> {
        let mut pages = Pages::new(self, orders, false, None);
        while let Some(page) = pages.next().await? {
            page.iter().for_each(|(_, id)| hears(Told::Overdue(id)));
        }
        Ok(())
    }
}
