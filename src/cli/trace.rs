//! `duebox trace`: one key through the outbox, the broker as far as the tier tells, and the orders' tables. Asks the
//! database only, so that it works with RabbitMQ and every daemon down.

mod message;
mod next;
mod order;
mod promise;

use super::pause::told;
use super::{FAILED, OK, database, load, print};
use crate::config::{Config, Rule};
use crate::outbox::pauses::{self, Pause};
use crate::outbox::trace::{self, Message, Sweeps, Traced};
use crate::rule::{self, utc};
use crate::words::shown;
use message::MessageView;
use order::OrderView;
use serde::Serialize;
use std::path::Path;

/// Options of `trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The business id, as the application gave it to the outbox: the order's id
    key: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is known of one key.
struct Known<'a> {
    config: &'a Config,
    key: &'a str,
    messages: Traced,
    /// What each rule says of it.
    orders: Vec<(&'a str, rule::Seen)>,
    pauses: Vec<Pause>,
    sweeps: Sweeps,
}

/// What is shown of it.
#[derive(Serialize)]
struct View {
    key: String,
    /// The database's time, in UTC; none where it has no message.
    now: Option<String>,
    messages: Vec<MessageView>,
    /// Older messages that are not shown.
    left_out: i64,
    orders: Vec<OrderView>,
    pauses: Vec<Pause>,
    next: String,
}

pub(super) async fn run(args: &Args, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = match load(path)? {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let known = ask(&loaded.config, &args.key).await?;
    let view = known.view();
    print(&if args.json { format!("{:#}\n", serde_json::to_value(&view)?) } else { view.text() })?;
    Ok(if known.nothing() { FAILED } else { OK })
}

async fn ask<'a>(config: &'a Config, key: &'a str) -> anyhow::Result<Known<'a>> {
    let db = &database(config)?;
    let messages = trace::trace(db, key).await?;
    let pauses = pauses::list(db).await?;
    let mut orders = Vec::new();
    for (name, rule) in &config.rules {
        orders.push((name.as_str(), rule::trace(db, name, rule, key).await?));
    }
    let rules: Vec<&str> = config.rules.keys().map(String::as_str).collect();
    Ok(Known { config, key, messages, orders, pauses, sweeps: trace::sweeps(db, &rules).await? })
}

impl Known<'_> {
    /// Nobody knows the key.
    fn nothing(&self) -> bool {
        self.messages.messages.is_empty() && !self.orders.iter().any(|(_, seen)| matches!(seen, rule::Seen::Order(_)))
    }

    /// The pause of `what`, which is as `duebox resume` takes it.
    fn paused(&self, what: &str) -> Option<&Pause> {
        self.pauses.iter().find(|pause| pause.what == what)
    }

    /// What keeps the rows of a tier from being claimed.
    fn tier_paused(&self, tier: &str) -> Option<&Pause> {
        self.paused("relay").or_else(|| self.paused(&format!("tier {tier}")))
    }

    /// The events by which a rule told that it closed this order. A payload of the user's own need not say which rule wrote
    /// it: where several rules may have, it is the word of none.
    fn closes(&self, rule: &str) -> impl Iterator<Item = &Message> {
        let rules = &self.config.rules;
        let writes = |rule: &Rule, message: &Message| {
            let event = rule.event.as_ref();
            event.is_some_and(|event| message.tier == event.tier && message.kind.as_ref() == Some(&event.type_))
        };
        self.messages.messages.iter().filter(move |message| {
            let named = message.rule.as_ref().filter(|name| rules.contains_key(*name));
            let mut writers = rules.iter().filter(|(_, rule)| writes(rule, message)).map(|(name, _)| name);
            let only = writers.clone().nth(1).is_none();
            writers.any(|writer| writer == rule) && named.map_or(only, |name| name == rule)
        })
    }

    fn view(&self) -> View {
        let Traced { messages, total } = &self.messages;
        View {
            key: self.key.to_owned(),
            now: messages.first().map(|message| utc(message.now)),
            messages: messages.iter().map(|message| MessageView::of(self, message)).collect(),
            left_out: total - i64::try_from(messages.len()).unwrap_or_default(),
            orders: self.orders.iter().map(|(rule, seen)| OrderView::of(self, rule, seen)).collect(),
            pauses: self.pauses.clone(),
            next: next::next(self),
        }
    }
}

impl View {
    fn text(&self) -> String {
        let mut text = format!("key {}\n", shown(&self.key));
        if self.left_out > 0 {
            let more = if self.left_out + 100 >= 10_000 { " or more" } else { "" };
            text.push_str(&format!(
                "{}{more} older messages are not shown; a key that so many have is hardly an order's\n",
                self.left_out
            ));
        }
        text.extend(self.messages.iter().map(MessageView::text));
        if self.messages.is_empty() {
            text.push_str("no row of the outbox has this key\n");
        }
        text.extend(self.orders.iter().map(|order| format!("rule {}: {}\n", order.rule, order.text)));
        text.extend(self.pauses.iter().map(|pause| format!("paused {}\n", told(pause))));
        text + &format!("next: {}\n", self.next)
    }
}
