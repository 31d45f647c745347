//! One pass over the overdue orders of a rule, in batches.

use super::missed::Missed;
use super::pages::Pages;
use super::{Broken, Hears, Memory, Sweep, Told};
use crate::outbox::connect::within;
use crate::outbox::error::Error;
use crate::rule::close;
use crate::rule::closing::{Closing, Kept};
use crate::rule::orders::Orders;
use crate::rule::pass::Pass;
use crate::rule::size::Size;
use crate::rule::tell::{self, FAILED};
use crate::words::shown;
use std::time::{Duration, Instant};

/// Who closed, in events, the log and metrics.
const BY: &str = "sweep";

/// Bound on closing that we keep ourselves: Postgres keeps a second, this catches one that no longer answers at all.
const CLOSE: Duration = Duration::from_secs(3);

/// Rest between batches, for those who wait for a lock or a disk.
const PAUSE: Duration = Duration::from_millis(20);

/// While orders are closed one by one the pass is refreshed this often; it is taken over after 30 s.
const KEEP: Duration = Duration::from_secs(5);

/// Orders that are named when they cannot be closed; the rest are counted.
const NAMED: usize = 10;

/// So many orders may fail in a pass, and the rest of a page: each costs a transaction, and by a rule that fits no order all
/// do. The next pass goes on behind them, so that no number of them keeps newer orders open.
pub(super) const FAILURES: usize = 1_000;

/// One pass.
pub(super) struct Round<'a> {
    pub(super) sweep: &'a Sweep,
    pub(super) pass: &'a Pass<'a>,
    pub(super) orders: &'a Orders,
    /// Whoever waits for its end; the log and the metrics are told in any case.
    pub(super) hears: Hears<'a>,
    /// How many orders may fail.
    pub(super) bound: usize,
}

impl Round<'_> {
    /// Closes what is to be closed, from where a pass has left off that `missed` so much. A page of orders is found at a
    /// time, whatever the guard says of them, and closed in batches that keep their own size.
    pub(super) async fn close(&self, mut missed: Missed) -> Result<Missed, Broken> {
        let (mut size, before) = (Size::new(self.sweep.batch), missed.count);
        let mut pages = Pages::new(self.sweep, self.orders, true, missed.rest.take());
        self.keep().await?;
        while let Some(page) = pages.next().await? {
            let ids: Vec<String> = page.into_iter().map(|(_, id)| id).collect();
            let mut rest = ids.as_slice();
            while !rest.is_empty() {
                let most = if self.orders.one_by_one() { 1 } else { size.rows };
                let (batch, more) = rest.split_at(most.min(rest.len()));
                self.batch(batch, &mut size, &mut missed).await?;
                rest = more;
                self.sweep.patient(tokio::time::sleep(PAUSE)).await?;
                self.keep().await?;
            }
            if missed.count - before >= self.bound {
                missed.rest = pages.rest();
                break;
            }
        }
        Ok(missed)
    }

    /// Counts what would be closed.
    pub(super) async fn observe(&self, memory: &mut Memory) -> Result<(), Broken> {
        let (mut count, mut new, rule) = (0, 0, &self.sweep.name);
        let mut pages = Pages::new(self.sweep, self.orders, false, None);
        self.keep().await?;
        while let Some(page) = pages.next().await? {
            for (due, id) in page {
                count += 1;
                let is_new = memory.seen.as_ref().is_none_or(|(seen, last)| (*seen, last) < (due, &id));
                if is_new && new < NAMED {
                    let id = shown(&id);
                    let said = self.said("would", &format!("order {id}"));
                    tracing::info!(order = id, rule, by = BY, "rule {rule}: {said}");
                }
                new += usize::from(is_new);
            }
            self.sweep.patient(tokio::time::sleep(PAUSE)).await?;
            self.keep().await?;
        }
        if new > 0 {
            let said = self.said("would", &format!("{count} order(s)"));
            tracing::info!(rule, count, new, "rule {rule}: {said}, {new} of them new");
        }
        memory.seen = pages.last().or(memory.seen.take());
        self.sweep.metrics.rules.observed(rule, count);
        Ok(())
    }

    fn said(&self, how: &str, orders: &str) -> String {
        self.sweep.rule.action.said(how, orders)
    }

    /// Shows that the pass goes on, or breaks it off.
    async fn keep(&self) -> Result<(), Broken> {
        let rule = &self.sweep.name;
        if self.sweep.patient(self.pass.keep()).await?? {
            return Ok(());
        }
        tracing::debug!(rule, "another relay has taken over the sweep of rule {rule}");
        Err(Broken::TakenOver)
    }

    /// Closes a batch together, or one by one when that fails.
    async fn batch(&self, ids: &[String], size: &mut Size, missed: &mut Missed) -> Result<(), Broken> {
        let (started, rule) = (Instant::now(), &self.sweep.name);
        let closed = self.apply(ids, missed).await;
        size.learn(started.elapsed());
        match closed {
            Err(Broken::Failed(error)) if self.is_of_orders(&error).await? => {
                tracing::debug!(rule, %error, "a batch of rule {rule} goes order by order");
            }
            closed => return closed,
        }
        let mut shown_at = Instant::now();
        for id in ids {
            if shown_at.elapsed() >= KEEP {
                shown_at = Instant::now();
                self.keep().await?;
            }
            let one = std::slice::from_ref(id);
            let closed = match self.apply(one, missed).await {
                // Once more: the relay may have stood still, and a server or a proxy been taken down.
                Err(Broken::Failed(error)) if error.is_gone() && self.is_of_orders(&error).await? => {
                    self.apply(one, missed).await
                }
                closed => closed,
            };
            match closed {
                Err(Broken::Failed(error)) if self.is_of_orders(&error).await? => self.miss(id, &error, missed),
                closed => closed?,
            }
        }
        Ok(())
    }

    /// Whether what has failed is the orders' doing, and not that the database is away or the table locked as a whole.
    async fn is_of_orders(&self, error: &Error) -> Result<bool, Broken> {
        if !error.is_gone() {
            return Ok(!matches!(error, Error::Table { .. }));
        }
        self.sweep.patient(close::is_its_end(&self.sweep.db, error)).await
    }

    /// Closes those of `ids` that are to be closed, in one transaction, and tells of each.
    async fn apply(&self, ids: &[String], missed: &mut Missed) -> Result<(), Broken> {
        let Sweep { db, metrics, name, .. } = self.sweep;
        let transaction = self.sweep.patient(close::begin(db, self.orders)).await??;
        // Not given up at the stop: what was closed is to be told.
        let closings = within("close orders", CLOSE, close::some(transaction, self.orders, ids, BY)).await?;
        for (id, closing) in &closings {
            missed.closed += usize::from(matches!(closing, Closing::Closed(_)));
            tell::tell(metrics, name, BY, &shown(id), closing, None);
            (self.hears)(Told::Order(id, closing));
        }
        // Those that were skipped; in a full batch there are none to look for.
        let full = closings.len() == ids.len();
        for id in ids.iter().filter(|id| !full && !closings.iter().any(|(told, _)| told == *id)) {
            self.passed_by(id, missed).await?;
        }
        Ok(())
    }

    /// An order that was found and not there to be locked: somebody has it, or policies of the table hide it.
    async fn passed_by(&self, id: &str, missed: &mut Missed) -> Result<(), Broken> {
        let Sweep { db, metrics, name, .. } = self.sweep;
        // A transaction each: those that are named will do. Which of the two it is of the others is not known.
        let (policed, locked) = (self.orders.is_policed, Closing::Kept(Kept::Locked));
        if policed && missed.count >= NAMED {
            (self.hears)(Told::Order(id, &locked));
            return Ok(());
        }
        let closing =
            if policed { close::one(db, self.orders, (id, close::AT_ONCE), BY).await } else { Ok(locked.clone()) };
        match closing {
            Ok(closing) => {
                missed.closed += usize::from(matches!(closing, Closing::Closed(_)));
                if closing == locked {
                    missed.lock(id);
                }
                tell::tell(metrics, name, BY, &shown(id), &closing, None);
                (self.hears)(Told::Order(id, &closing));
            }
            Err(error) if self.is_of_orders(&error).await? => self.miss(id, &error, missed),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Tells of an order that could not be closed.
    fn miss(&self, id: &str, error: &Error, missed: &mut Missed) {
        let rule = &self.sweep.name;
        let reason = if error.is_gone() { close::ended(error) } else { error.to_string() };
        missed.count += 1;
        if missed.count == 1 {
            missed.first = format!("{}: {reason}", shown(id));
        }
        self.sweep.metrics.rules.refused(rule, BY, FAILED);
        (self.hears)(Told::Failed(id, error));
        let id = shown(id);
        if error.is_conflict() {
            tracing::debug!(order = id, rule, %error, "rule {rule}: order {id} is left to the next pass");
        } else if missed.count <= NAMED {
            let said = self.said("could not", &format!("order {id}"));
            tracing::warn!(order = id, rule, by = BY, %error, "rule {rule}: {said}: {reason}");
        }
    }
}
