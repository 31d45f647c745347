//! `duebox sweep --once`: a pass of every rule in the foreground.

use super::pause::{told, unknown};
use super::{FAILED, MISUSED, OK, database, load, print};
use crate::admin::health::Health;
use crate::admin::metrics::Metrics;
use crate::config::{Action, Config, Mode};
use crate::outbox::connect::Db;
use crate::outbox::pauses;
use crate::outbox::pauses::{Pause, What};
use crate::outbox::rights::{self, Needs};
use crate::rule::{Closed, Closing, Kept, Sweep, Told, holders};
use crate::stop::Stop;
use crate::words::{age, shown};
use futures_util::StreamExt;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One pass, then end; the daemon does the others
    #[arg(long, required = true)]
    once: bool,
    /// Say what would be closed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// This rule only
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
}

const NEEDS: Needs = Needs { tables: &[("state", "select"), ("state", "insert"), ("state", "update")], rings: false };

pub(super) async fn run(args: &Args, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = match load(path)? {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let config = &loaded.config;
    if let Some(unknown) = args.rule.as_ref().and_then(|rule| unknown(config, &What::Rule(rule.clone()))) {
        print(&format!("{unknown}\n"))?;
        return Ok(MISUSED);
    }
    if config.rules.is_empty() {
        print("relay.toml has no rule: nothing says which orders are overdue\n")?;
        return Ok(MISUSED);
    }
    let mut signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT])?;
    let stop = Stop::default();
    let mut swept = Box::pin(all(config, args, &stop));
    let good = tokio::select! {
        good = &mut swept => good?,
        _signal = signals.next() => {
            stop.raise();
            tokio::select! {
                good = &mut swept => good?,
                _again = signals.next() => {
                    print("stopped at once by a second signal; orders whose line is above are closed\n")?;
                    false
                }
            }
        }
    };
    Ok(if good { OK } else { FAILED })
}

/// Sweeps by each rule that is asked for, until the stop. False: something could not be closed.
async fn all(config: &Config, args: &Args, stop: &Stop) -> anyhow::Result<bool> {
    let (db, mut good) = (database(config)?, true);
    for rule in config.rules.keys().filter(|name| args.rule.as_ref().is_none_or(|rule| rule == *name)) {
        if stop.raised() {
            print(&format!("rule {rule}: not swept: stopped before\n"))?;
            good = false;
        } else {
            good &= one(config, &db, rule, args.dry_run, stop).await?;
        }
    }
    Ok(good)
}

/// Sweeps by one rule. False: something could not be closed.
async fn one(config: &Config, db: &Db, name: &str, dry: bool, stop: &Stop) -> anyhow::Result<bool> {
    let Some(rule) = config.rules.get(name) else { return Ok(false) };
    if let Some(pause) = paused(&pauses::list(db).await?, name) {
        let what = shown(&pause.what);
        print(&format!("rule {name}: nothing is done; paused: {}; duebox resume {what}\n", told(&pause)))?;
        return Ok(false);
    }
    let sweep = Sweep {
        db: db.clone(),
        name: name.to_owned(),
        rule: rule.clone(),
        batch: config.sweep.batch,
        health: Arc::<Health>::default(),
        metrics: Arc::<Metrics>::default(),
        stop: stop.clone(),
    };
    let count = Mutex::new(Count::default());
    let hears = |told: Told<'_>| count.lock().unwrap_or_else(PoisonError::into_inner).hear((name, &rule.action), &told);
    let problem = match Box::pin(sweep.once(dry, &hears)).await {
        Ok(problem) => problem,
        Err(error) => return Err(rights::explain(db, NEEDS, error).await.into()),
    };
    let count = count.into_inner().unwrap_or_else(PoisonError::into_inner);
    let would = |overdue: usize| rule.action.said("would", &overdue.to_string());
    let said = match (dry, rule.mode) {
        (true, _) => format!("{}; nothing was changed", would(count.overdue)),
        (false, Mode::Observe) => format!("{}; nothing was changed, the rule only observes", would(count.overdue)),
        (false, Mode::Enforce) => count.told(rule.action.closes()),
    };
    print(&format!("rule {name}: {said}\n"))?;
    if count.locked > 0 {
        print(&format!("rule {name}: locked: {}\n", holders(&rule.table)))?;
    }
    if let Some(problem) = &problem {
        print(&format!("rule {name}: {problem}\n"))?;
    }
    count.printed?;
    Ok(problem.is_none() && count.failed == 0)
}

/// What keeps the sweep from applying the rule.
fn paused(pauses: &[Pause], rule: &str) -> Option<Pause> {
    let whats = [What::Sweep, What::Rule(rule.to_owned())];
    pauses.iter().find(|pause| whats.iter().any(|what| pause.is_of(what))).cloned()
}

/// What became of the orders.
struct Count {
    closed: usize,
    kept: usize,
    locked: usize,
    failed: usize,
    overdue: usize,
    /// Whether the lines could be printed.
    printed: anyhow::Result<()>,
}

impl Default for Count {
    fn default() -> Self {
        Self { closed: 0, kept: 0, locked: 0, failed: 0, overdue: 0, printed: Ok(()) }
    }
}

impl Count {
    /// Counts it, and prints its line.
    fn hear(&mut self, (rule, action): (&str, &Action), told: &Told<'_>) {
        match told {
            Told::Order(_, Closing::Closed(_)) => self.closed += 1,
            Told::Order(_, Closing::Kept(Kept::Locked)) => self.locked += 1,
            Told::Order(_, Closing::Kept(_)) => self.kept += 1,
            Told::Failed(..) => self.failed += 1,
            Told::Overdue(_) => self.overdue += 1,
            Told::Waits | Told::Notes(_) => {}
        }
        if self.printed.is_ok() {
            self.printed = print(&format!("rule {rule}: {}\n", line(action, told)));
        }
    }

    fn told(&self, closes: bool) -> String {
        let Self { closed, kept, locked, failed, .. } = self;
        if closes {
            format!("{closed} closed, {kept} kept, {locked} locked, {failed} could not be closed")
        } else {
            format!("applied to {closed}, {kept} kept, {locked} locked, could not be applied to {failed}")
        }
    }
}

fn line(action: &Action, told: &Told<'_>) -> String {
    let said = |how, id| action.said(how, &format!("order {}", shown(id)));
    match told {
        Told::Waits => "a relay sweeps just now; waiting for the end of its pass".to_owned(),
        // Whoever sweeps now and then has read them: they stand where the table is looked at.
        Told::Notes(count) => format!("{count} note(s) on how well it works: duebox check --connect"),
        Told::Order(id, Closing::Closed(closed)) => format!("order {} {}", shown(id), of_closed(closed)),
        Told::Order(id, Closing::Kept(Kept::Locked)) => {
            format!("order {} locked by somebody else, or gone: the next sweep looks again", shown(id))
        }
        Told::Order(id, Closing::Kept(kept)) => format!("order {} kept: {kept}", shown(id)),
        Told::Failed(id, error) => format!("{}: {error}", said("could not", id)),
        Told::Overdue(id) => said("would", id),
    }
}

fn of_closed(closed: &Closed) -> String {
    let Closed { was, is, message_id, late, .. } = closed;
    let is = is.as_deref().unwrap_or("gone");
    let event = message_id.map_or_else(String::new, |id| format!(", told in message {id}"));
    let did = if is == was {
        format!("applied: {} as before", shown(is))
    } else {
        format!("closed: {} is now {}", shown(was), shown(is))
    };
    format!("{did}, overdue for {}{event}", age(*late))
}
