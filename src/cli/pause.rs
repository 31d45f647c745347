//! `duebox pause` and `duebox resume`: for all relays, until somebody resumes.

use super::{MISUSED, OK, database, load, print};
use crate::config::{Config, Wake};
use crate::outbox::pauses::{self, Pause, What};
use crate::tier;
use crate::words::{age, shown};
use std::path::Path;

/// Options of `pause`.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(subcommand)]
    target: Target,
    /// Why: whoever meets the pause reads it
    #[arg(long, global = true, value_name = "TEXT")]
    reason: Option<String>,
    /// Although this relay.toml has no tier or rule of that name: another relay's has
    #[arg(long, global = true)]
    force: bool,
}

/// Options of `resume`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct ResumeArgs {
    #[command(subcommand)]
    target: Option<Target>,
    /// Everything that is paused
    #[arg(long, required = true)]
    all: bool,
}

/// What can be paused.
#[derive(Debug, clap::Subcommand)]
pub enum Target {
    /// Every claim of every relay: rows wait in the outbox, what is in flight is finished
    Relay,
    /// Every closer: it closes no order
    Closer,
    /// Every sweep: it closes no order
    Sweep,
    /// The rows of one tier
    Tier {
        /// A tier of relay.toml
        name: String,
    },
    /// One rule: neither sweep nor closer closes its orders
    Rule {
        /// A rule of relay.toml
        name: String,
    },
}

impl From<Target> for What {
    fn from(target: Target) -> Self {
        match target {
            Target::Relay => Self::Relay,
            Target::Closer => Self::Closer,
            Target::Sweep => Self::Sweep,
            Target::Tier { name } => Self::Tier(name),
            Target::Rule { name } => Self::Rule(name),
        }
    }
}

pub(super) async fn pause(args: PauseArgs, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = match load(path)? {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let what = What::from(args.target);
    if !args.force
        && let Some(unknown) = unknown(&loaded.config, &what)
    {
        print(&format!("not paused: {unknown}; --force pauses it all the same, for relays with another file\n"))?;
        return Ok(MISUSED);
    }
    let db = database(&loaded.config)?;
    let (login, host) = whoever();
    let by = (login.as_deref(), host.as_deref());
    let new = pauses::pause(&db, &what, args.reason.as_deref(), by).await?;
    let found = pauses::list(&db).await?.into_iter().find(|pause| pause.is_of(&what));
    print(&match found {
        Some(pause) if !new => format!("paused already: {}\n", told(&pause)),
        _ => format!("paused: {what}; {}\n", effect(&loaded.config, &what)),
    })?;
    Ok(OK)
}

/// What a pause does and what it does not.
fn effect(config: &Config, what: &What) -> &'static str {
    match what {
        What::Relay => {
            "no relay claims rows until it is resumed; what is in flight is finished, sweep and closer go on"
        }
        What::Tier(_) => "no relay claims its rows until it is resumed; what is in flight is finished",
        What::Closer => "no closer applies rules until it is resumed; messages that fall due wait, the sweep goes on",
        What::Sweep => "no sweep applies rules until it is resumed; the closer goes on",
        What::Rule(_) if !config.sweep.enabled => {
            "it is applied to no order until it is resumed; messages that fall due meanwhile are acknowledged, and no sweep of this relay.toml comes back to their orders ([sweep] enabled = false): after that duebox sweep --once"
        }
        What::Rule(_) => {
            "it is applied to no order until it is resumed; messages that fall due meanwhile are acknowledged, the sweep finds their orders after that"
        }
    }
}

pub(super) async fn resume(args: ResumeArgs, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = match load(path)? {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let config = &loaded.config;
    let what = args.target.map(What::from);
    let db = database(config)?;
    let ended = pauses::resume(&db, what.as_ref()).await?;
    let left = pauses::list(&db).await?;
    let mut text: String = ended.iter().map(|pause| format!("resumed: {}\n", told(pause))).collect();
    let mut code = OK;
    match &what {
        Some(what) if ended.is_empty() => {
            let unknown = unknown(config, what);
            code = if unknown.is_some() { MISUSED } else { OK };
            text.push_str(&format!(
                "{what} was not paused{}\n",
                unknown.map_or_else(String::new, |why| format!(": {why}"))
            ));
        }
        None if ended.is_empty() => text.push_str("nothing was paused\n"),
        _ => text.push_str(&after(config, &ended)),
    }
    text.extend(left.iter().map(|pause| format!("still paused: {}\n", told(pause))));
    print(&text)?;
    Ok(code)
}

/// When the end of these pauses is felt, a line for each kind.
fn after(config: &Config, ended: &[Pause]) -> String {
    let has = |kinds: &[&str]| {
        ended.iter().any(|pause| pause.what.split(' ').next().is_some_and(|kind| kinds.contains(&kind)))
    };
    let rows = match config.outbox.wake {
        Wake::Notify => "rows that waited leave now\n",
        Wake::Poll => "rows that waited leave at the next poll\n",
    };
    let orders = if config.sweep.enabled {
        "orders that became overdue meanwhile are found by the next sweep, or now: duebox sweep --once\n"
    } else {
        "no sweep of this relay.toml finds the orders that became overdue meanwhile: duebox sweep --once\n"
    };
    let lines = [
        (has(&["relay", "tier"]), rows),
        (has(&["closer"]), "messages that waited for the closer are looked at within seconds\n"),
        (has(&["sweep", "rule"]), orders),
    ];
    lines.into_iter().filter(|(said, _)| *said).map(|(_, line)| line).collect()
}

/// Why `what` is not known here, if it is not.
pub(super) fn unknown(config: &Config, what: &What) -> Option<String> {
    let (kind, name, known): (_, _, Vec<&str>) = match what {
        What::Tier(name) => ("tier", name, config.tiers.keys().map(String::as_str).collect()),
        What::Rule(name) => ("rule", name, config.rules.keys().map(String::as_str).collect()),
        What::Relay | What::Closer | What::Sweep => return None,
    };
    if known.contains(&name.as_str()) {
        return None;
    }
    Some(format!("relay.toml has no {kind} '{}'; {}", shown(name), tier::hint("you", name, &known)))
}

/// A pause in one line: what, since when, by whom, why.
pub(super) fn told(pause: &Pause) -> String {
    let since = pause.since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
    let reason = pause.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", shown(reason)));
    let by = pause.by().map_or_else(String::new, |by| format!(" by {}", shown(&by)));
    format!("{}{since} ({}){by}{reason}", shown(&pause.what), age(pause.age()))
}

/// Login and host of whoever runs this command: the role alone is the same for all operators. Of one who used sudo,
/// their own.
fn whoever() -> (Option<String>, Option<String>) {
    let login = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    (login, host)
}
