//! `config show` and the offline `check`: the configuration in words.

use super::problem::Origin;
use super::table::{Entry, dotted};
use super::units::show_duration;
use super::{ConfigError, Loaded};
use crate::tier::{Kind, Target, Tier};
use std::time::Duration;

/// The tables in the order of `relay.toml`.
const ORDER: [&str; 9] = ["postgres", "rabbitmq", "outbox", "relay", "tier", "rule", "sweep", "admin", "log"];

/// The effective configuration as TOML, each value with where it comes from; secrets are masked.
#[must_use]
pub fn render(loaded: &Loaded) -> String {
    let rank = |entry: &&Entry| {
        let first = entry.section.first().map(String::as_str);
        ORDER.iter().position(|name| Some(*name) == first)
    };
    let mut entries: Vec<&Entry> = loaded.entries.iter().collect();
    entries.sort_by(|a, b| (rank(a), &a.section).cmp(&(rank(b), &b.section)));
    let mut text = String::new();
    let mut section: &[String] = &[];
    for entry in entries {
        if entry.section != section {
            section = &entry.section;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{}]\n", dotted(section)));
        }
        text.push_str(&line(entry));
    }
    text
}

/// One key, its value and its origin.
fn line(entry: &Entry) -> String {
    let key = dotted(std::slice::from_ref(&entry.key));
    match (&entry.value, &entry.origin) {
        (None, _) => format!("# {key} is not set\n"),
        (Some(value), Origin::Default) => format!("{key} = {value}  # default\n"),
        (Some(value), origin) => format!("{key} = {value}  # from {origin}\n"),
    }
}

/// What `check` prints about a configuration: one line a tier and the warnings, or every problem.
#[must_use]
pub fn report(loaded: &Result<Loaded, ConfigError>) -> String {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(ConfigError::Read { path, source }) => return format!("cannot read {}: {source}\n", path.display()),
        Err(error) => return format!("{error}\n"),
    };
    let (tiers, rules) = (loaded.config.tiers.len(), loaded.config.rules.len());
    let mut text = format!("{}: good, {tiers} tier(s), {rules} rule(s)\n", loaded.path.display());
    for tier in loaded.config.tiers.values() {
        text.push_str(&format!("  tier {}: {}\n", tier.name, describe(tier)));
    }
    for warning in &loaded.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

/// How long rows wait that have no due time of their own.
fn wait(delay: Option<Duration>) -> String {
    delay.map_or_else(|| "until each row's due_at".to_owned(), show_duration)
}

/// A tier in words.
fn describe(tier: &Tier) -> String {
    let target = match &tier.target {
        Target::Queue(queue) => format!("queue '{queue}'"),
        Target::Exchange { exchange, routing_key: Some(key), .. } => format!("exchange '{exchange}' with key '{key}'"),
        Target::Exchange { exchange, routing_key: None, .. } => format!("exchange '{exchange}' with each row's key"),
    };
    match &tier.kind {
        Kind::Direct => format!("direct to {target}"),
        Kind::Hold { delay } => format!("{} in the outbox, then to {target}", wait(*delay)),
        Kind::Plugin { delay, exchange } => {
            format!("{} in exchange '{exchange}', which the plugin keeps, then to {target}", wait(*delay))
        }
        Kind::Queue { delay, queue, .. } => {
            let through = if queue.hop.exchange.is_empty() { String::new() } else { format!(" through {}", queue.hop) };
            format!("{} in delay queue '{}'{through}, then to {target}", show_duration(*delay), queue.name)
        }
    }
}
