//! `[tier.NAME]`: reads each tier, then looks at all of them together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::delay_queue::{QUEUE_KEYS, read_delay_queue};
use super::shape::{MAX_AMQP_NAME, Shape, boolean, choice, duration, quote, text, text_or_empty};
use super::table::{Reader, Table};
use super::units::show_duration;
use crate::tier::{Hop, Kind, MAX_DELAY, MAX_PLUGIN_DELAY, MIN_DELAY, Target, Tier, default_late_tolerance, nearest};

/// Longest tier name: with `duebox.`, the longest delay in milliseconds and the hash it still fits an AMQP name.
pub(crate) const MAX_NAME: usize = MAX_AMQP_NAME - "duebox..315360000000.ffffff".len();

/// The plugin's exchange in front of target queues, where the user has none of his own.
const PLUGIN_EXCHANGE: &str = "duebox.delayed";

/// From here on a delay queue has to outlive upgrades and restarts of the broker, so it is worth a warning.
const LONG_DELAY: Duration = Duration::from_secs(7 * 86_400);

/// All tiers of the file.
pub(crate) struct Tiers {
    /// Those without problems.
    pub(crate) built: BTreeMap<String, Tier>,
    /// The names of all.
    names: BTreeSet<String>,
}

impl Tiers {
    /// The rule that a reference to this name breaks, if there is no such tier.
    pub(crate) fn unknown(&self, name: &str) -> Option<String> {
        if self.names.contains(name) {
            return None;
        }
        let near = nearest(name, self.names.iter().map(String::as_str));
        let hint = near.map(|near| format!("; the nearest is '{near}'")).unwrap_or_default();
        Some(format!("must name a tier of this file{hint}"))
    }
}

/// Reads all tiers. `theirs`: the topology is the user's, and not declared by us.
pub(crate) fn read_tiers(table: Table<'_>, theirs: bool) -> Tiers {
    let mut tiers = Tiers { built: BTreeMap::new(), names: BTreeSet::new() };
    table.drain_tables(|table, name| {
        tiers.names.insert(name.to_owned());
        tiers.built.extend(read_tier(table, name, theirs).map(|tier| (name.to_owned(), tier)));
    });
    tiers
}

/// Notes a name that cannot stand in queue names, metrics and variables.
pub(crate) fn check_name(table: &mut Table<'_>, name: &str) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        table.wrong(format!("must have a name of 1 to {MAX_NAME} letters, digits, '.', '_' and '-'"));
    }
}

/// The kinds, as they are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KindName {
    Direct,
    Queue,
    Hold,
    Plugin,
}

fn kind() -> Shape<KindName> {
    const NAMES: [(&str, KindName); 4] = [
        ("direct", KindName::Direct),
        ("queue", KindName::Queue),
        ("hold", KindName::Hold),
        ("plugin", KindName::Plugin),
    ];
    choice(&NAMES, |kind| {
        NAMES.iter().find(|(_, known)| known == kind).map_or_else(String::new, |(name, _)| quote(name))
    })
}

/// Reads one tier; `None` after a problem, which is noted.
fn read_tier(mut table: Table<'_>, name: &str, theirs: bool) -> Option<Tier> {
    check_name(&mut table, name);
    let default = if table.has("delay") { KindName::Queue } else { KindName::Direct };
    let kind_name = table.or("kind", default, &kind());
    let target = read_target(&mut table);
    if kind_name == KindName::Plugin {
        table
            .refuse("mandatory", "must not be set for kind \"plugin\": the plugin returns every message that it keeps");
    }
    let mandatory = table.or("mandatory", true, &boolean());
    let kind = match kind_name {
        KindName::Direct => read_direct(&mut table),
        KindName::Queue => read_queue(&mut table, name, target.as_ref(), theirs),
        KindName::Hold => read_hold(&mut table),
        KindName::Plugin => read_plugin(&mut table, name, target.as_ref()),
    };
    table.finish();
    Some(Tier { name: name.to_owned(), kind: kind?, target: target?, mandatory })
}

/// A direct tier takes none of the keys of a delay queue.
fn read_direct(table: &mut Table<'_>) -> Option<Kind> {
    table.refuse("delay", "must not be set for kind \"direct\": leave out `kind`, or the delay");
    for key in QUEUE_KEYS {
        table.refuse(key, "must not be set for kind \"direct\": it belongs to tiers with a delay");
    }
    Some(Kind::Direct)
}

/// Rows wait in Postgres, so there is no delay queue to speak of.
fn read_hold(table: &mut Table<'_>) -> Option<Kind> {
    let delay = table.optional("delay", &duration(MIN_DELAY..=MAX_DELAY));
    for key in QUEUE_KEYS {
        table.refuse(key, "must not be set for kind \"hold\": rows wait in Postgres, not in a delay queue");
    }
    Some(Kind::Hold { delay })
}

/// The plugin's exchange: that of the target, or one of ours in front of the target queue.
fn read_plugin(table: &mut Table<'_>, name: &str, target: Option<&Target>) -> Option<Kind> {
    let delay = table.optional("delay", &duration(MIN_DELAY..=MAX_PLUGIN_DELAY));
    let exchange = match target {
        Some(Target::Exchange { exchange, .. }) => {
            table.refuse("exchange", "must not be set beside an exchange of the target, which is the plugin's");
            Some(exchange.clone())
        }
        _ => Some(table.or("exchange", PLUGIN_EXCHANGE.to_owned(), &text(MAX_AMQP_NAME))),
    };
    for key in QUEUE_KEYS.into_iter().filter(|key| *key != "exchange") {
        table.refuse(key, "must not be set for kind \"plugin\": there is no delay queue");
    }
    table.reader.warnings.push(format!(
        "tier.{name} uses the delayed-message plugin: it is archived and does not run on RabbitMQ 4.3 and later, keeps one \
         copy that a lost node takes along, and reports nothing that leads nowhere; kind \"hold\" or \"queue\" loses nothing"
    ));
    Some(Kind::Plugin { delay, exchange: exchange? })
}

/// The delay and its queue.
fn read_queue(table: &mut Table<'_>, name: &str, target: Option<&Target>, theirs: bool) -> Option<Kind> {
    let shape = duration(MIN_DELAY..=MAX_DELAY);
    let delay = table.required("delay", &shape, "how long the delay queue holds a message, such as \"30m\"");
    let longest = delay.unwrap_or(MAX_DELAY);
    let tolerance = duration(Duration::ZERO..=longest);
    let late_tolerance = table.or("late_tolerance", default_late_tolerance(longest), &tolerance);
    if longest > LONG_DELAY && delay.is_some() {
        table.reader.warnings.push(format!(
            "tier.{name}.delay is {}: a delay queue of more than 7d has to outlive upgrades of the broker",
            show_duration(longest)
        ));
    }
    if let Some(Target::Exchange { routing_key: None, .. }) = target {
        table.problem(
            "target",
            "must have a routing_key in a tier with a delay: dead letters that cannot be routed stop a delay queue for \
             everyone behind them; rows with keys of their own need a tier each",
        );
    }
    let queue = read_delay_queue(table, name, delay, target, theirs);
    Some(Kind::Queue { delay: delay?, late_tolerance, queue: queue? })
}

/// `target`: where messages end.
fn read_target(table: &mut Table<'_>) -> Option<Target> {
    if !table.has("target") {
        table.missing("target", "where messages end, such as { queue = \"order.due\" }");
    }
    let mut table = table.table("target")?;
    let named = table.has("queue") || table.has("exchange");
    let name = text(MAX_AMQP_NAME);
    let queue = table.optional("queue", &name);
    let exchange = table.optional("exchange", &name);
    let routing_key = table.optional("routing_key", &text_or_empty(MAX_AMQP_NAME));
    let exchange_type = table.optional("exchange_type", &exchange_type());
    let target = match (exchange, queue) {
        (Some(exchange), queue) => {
            if queue.is_some() && routing_key.is_none() {
                table.problem("queue", "must not be set without a routing_key, which it is bound with");
            }
            Some(Target::Exchange { exchange, exchange_type, routing_key, queue })
        }
        (None, Some(queue)) => {
            for (key, set) in [("routing_key", routing_key.is_some()), ("exchange_type", exchange_type.is_some())] {
                if set {
                    table.problem(key, "must not be set without an exchange");
                }
            }
            Some(Target::Queue(queue))
        }
        (None, None) => {
            // One that is set and not taken is noted already.
            if !named {
                table.wrong("must name a queue or an exchange");
            }
            None
        }
    };
    table.finish();
    target
}

/// A type of exchange: one of the broker's four, or a plugin's, which begins with `x-`.
fn exchange_type() -> Shape<String> {
    Shape::new(
        |name| quote(name),
        |raw| {
            match raw.text() {
            Some("x-delayed-message") => {
                Err("must not be \"x-delayed-message\": for that exchange give the tier kind = \"plugin\", and here the type \
                     behind it"
                    .to_owned())
            }
            Some(name) if matches!(name, "direct" | "topic" | "fanout" | "headers") => Ok(name.to_owned()),
            Some(name) if name.starts_with("x-") && name.len() <= MAX_AMQP_NAME => Ok(name.to_owned()),
            _ => Err("must be \"direct\", \"topic\", \"fanout\", \"headers\" or a plugin's \"x-...\"".to_owned()),
        }
        },
    )
}

/// Looks at all tiers together: there is at least one, no delay queue is shared, and no message ends in one.
pub(crate) fn check_together(reader: &mut Reader, tiers: &Tiers) {
    if tiers.names.is_empty() {
        reader.problem(
            &["tier"],
            "must have at least one tier, such as [tier.now] with target = { queue = \"order.events\" }",
        );
    }
    let mut delaying: BTreeMap<&str, (&str, &Hop)> = BTreeMap::new();
    for tier in tiers.built.values() {
        let Kind::Queue { queue, .. } = &tier.kind else { continue };
        if let Some((other, _)) = delaying.insert(&queue.name, (&tier.name, &queue.hop)) {
            let rule = format!("must not be the delay queue of tier '{other}' as well: one delay a queue");
            reader.problem(&["tier", &tier.name, "queue"], rule);
        }
    }
    for tier in tiers.built.values() {
        let Some((queue, owner)) = ends_in_delay(&tier.target, &delaying) else { continue };
        let whose = if owner == tier.name { "its own".to_owned() } else { format!("that of tier '{owner}'") };
        let rule = format!(
            "must not end in a delay queue, and '{queue}' is {whose}: the broker drops or keeps what goes in a circle"
        );
        reader.problem(&["tier", &tier.name, "target"], rule);
    }
}

/// The delay queue, and its tier, that a target leads to.
fn ends_in_delay<'a>(target: &Target, delaying: &BTreeMap<&'a str, (&'a str, &Hop)>) -> Option<(&'a str, &'a str)> {
    let (queue, hop) = match target {
        Target::Queue(queue) => (Some(queue), None),
        Target::Exchange { exchange, routing_key, queue, .. } => {
            (queue.as_ref(), Some((exchange, routing_key.as_ref())))
        }
    };
    delaying.iter().find_map(|(name, (owner, entrance))| {
        let same_queue = queue.is_some_and(|queue| queue == name);
        let same_way = hop.is_some_and(|(exchange, key)| {
            *exchange == entrance.exchange && key.is_some_and(|key| *key == entrance.routing_key)
        });
        (same_queue || same_way).then_some((*name, *owner))
    })
}
