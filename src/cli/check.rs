//! `duebox check`: the file, and with `--connect` both ends.

use super::{FAILED, MISCONFIGURED, OK, print};
use crate::app::build;
use crate::broker::management::Management;
use crate::broker::probe::{self, Probed};
use crate::broker::topology::{self, Inspection};
use crate::config::{self, Config, Wake};
use crate::outbox::connect::Db;
use crate::outbox::doorbell::Doorbell;
use crate::outbox::error::Error;
use crate::outbox::inspect;
use std::path::Path;
use std::sync::Arc;

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Connect to both ends: schema, privileges, and what each tier needs on the broker; nothing is changed
    #[arg(long)]
    connect: bool,
    /// Send one message through delay queues like those of the tiers (1 s), in queues of its own that it deletes
    #[arg(long)]
    probe: bool,
}

pub(super) async fn run(args: &Args, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = config::load(path);
    let report = config::report(&loaded);
    let Ok(loaded) = loaded else {
        print(&report)?;
        return Ok(MISCONFIGURED);
    };
    // What the drivers read of it is wrong as well when it is wrong here.
    let config = &loaded.config;
    let read = || {
        Db::new(build::database(&config.postgres)?, 1)?;
        build::listener(&config.postgres)?;
        build::broker(&config.rabbitmq, config.relay.max_message_bytes)?;
        anyhow::Ok(())
    };
    if let Err(error) = read() {
        print(&format!("{error:#}\n"))?;
        return Ok(MISCONFIGURED);
    }
    print(&report)?;
    let probed = if args.probe { Some(probe_rabbitmq(&loaded.config).await?) } else { None };
    if let Some(side) = &probed {
        print(&side.text)?;
    }
    let probed = probed.map_or(OK, |side| side.code);
    if !args.connect {
        return Ok(probed);
    }
    let (postgres, rabbitmq) = tokio::join!(check_postgres(&loaded.config), check_rabbitmq(&loaded.config));
    let (postgres, rabbitmq) = (postgres?, rabbitmq?);
    print(&format!("{}{}", postgres.text, rabbitmq.text))?;
    // An end that is away may come back; one that is there and wrong stays wrong.
    Ok(postgres.code.max(rabbitmq.code).max(probed))
}

/// What one end has to say.
struct Side {
    text: String,
    code: u8,
}

impl Side {
    fn away(name: &str, error: &str) -> Self {
        Self { text: format!("{name}: cannot be asked\n  {error}\n"), code: FAILED }
    }

    fn found(name: &str, good: &str, problems: &[String], code: u8) -> Self {
        if problems.is_empty() {
            return Self { text: format!("{name}: good{good}\n"), code: OK };
        }
        let lines: String = problems.iter().map(|problem| format!("  {problem}\n")).collect();
        Self { text: format!("{name}: {} problem(s)\n{lines}", problems.len()), code }
    }
}

async fn check_postgres(config: &Config) -> anyhow::Result<Side> {
    let db = Db::new(build::database(&config.postgres)?, 2)?;
    let found = match inspect::inspect(&db).await {
        Ok(found) => found,
        Err(error) => return Ok(Side::away("postgres", &error.to_string())),
    };
    let mut notes = Vec::from_iter(found.note(config.outbox.wake).map(str::to_owned));
    let mut problems = found.problems;
    if problems.is_empty() && config.outbox.wake == Wake::Notify {
        notes.extend(check_doorbell(config, db.clone()).await?);
    }
    // A rule is looked at through the schema: on one that is not good, it would only repeat what is wrong with that.
    let good = problems.is_empty();
    if !good && !config.rules.is_empty() {
        notes.push("the rules are looked at when that is mended".to_owned());
    }
    for (name, rule) in config.rules.iter().filter(|_| good) {
        match crate::rule::inspect(&db, name, rule).await {
            Ok(of_rule) => {
                problems.extend(of_rule.problems.iter().map(|problem| format!("rule {name}: {problem}")));
                let whose = format!("rule {name}");
                let named = |note: String| if note.contains(&whose) { note } else { format!("{whose}: {note}") };
                notes.extend(of_rule.notes.into_iter().map(named));
                notes.extend(of_rule.unseen.map(|what| format!("{whose}: {what} are looked at when that is mended")));
            }
            Err(error @ Error::Table { .. }) => problems.push(error.to_string()),
            Err(error) => return Ok(Side::away("postgres", &error.to_string())),
        }
    }
    let mut side = Side::found("postgres", &format!(", {}", found.schema), &problems, MISCONFIGURED);
    side.text.extend(notes.iter().map(|note| format!("  {note}\n")));
    Ok(side)
}

/// Why inserts would not be heard: the relay polls then.
async fn check_doorbell(config: &Config, rung: Db) -> anyhow::Result<Option<String>> {
    let listener = build::listener(&config.postgres)?;
    let doorbell = Doorbell::new(listener, rung, Arc::default(), (Arc::default(), Arc::default()));
    Ok(doorbell.check().await.unwrap_or_else(|error| {
        Some(format!(
            "{}: {error}",
            if config.postgres.listen_url.is_some() { "postgres.listen_url" } else { "postgres.url" }
        ))
    }))
}

async fn check_rabbitmq(config: &Config) -> anyhow::Result<Side> {
    let settings = build::broker(&config.rabbitmq, config.relay.max_message_bytes)?;
    let tiers: Vec<_> = config.tiers.values().cloned().collect();
    let (mut away, mut found) = (Vec::new(), None::<Inspection>);
    for endpoint in &settings.endpoints {
        let login = (endpoint.user.as_str(), &endpoint.password);
        let management = config.rabbitmq.management_url.as_ref();
        let management = management.map(|url| Management::new(url, login, &endpoint.vhost, settings.connect_timeout));
        match topology::inspect(endpoint, &settings, &tiers, management.as_ref()).await {
            Ok(inspection) => match &mut found {
                None => found = Some(inspection),
                Some(first) => also(first, inspection, &format!("{}:{}", endpoint.host, endpoint.port)),
            },
            Err(error) => away.push(error.to_string()),
        }
    }
    let Some(found) = found else { return Ok(Side::away("rabbitmq", &away.join("\n  "))) };
    let mut side = Side::found("rabbitmq", "", &found.problems, MISCONFIGURED);
    side.text.extend(found.notes.iter().map(|note| format!("  {note}\n")));
    // The daemon would go on to the next.
    side.text.extend(away.iter().map(|error| format!("  one of rabbitmq.urls is of no use now: {error}\n")));
    side.code = side.code.max(if away.is_empty() { OK } else { FAILED });
    Ok(side)
}

/// Adds what another node says and the first did not; of one cluster, each says the same.
fn also(first: &mut Inspection, other: Inspection, place: &str) {
    for (known, new) in [(&mut first.problems, other.problems), (&mut first.notes, other.notes)] {
        let new: Vec<String> = new.into_iter().filter(|one| !known.contains(one)).collect();
        known.extend(new.iter().map(|one| format!("at {place}, unlike the one before: {one}")));
    }
}

/// One message through a delay queue of each kind, at the first broker that can be asked.
async fn probe_rabbitmq(config: &Config) -> anyhow::Result<Side> {
    let settings = build::broker(&config.rabbitmq, config.relay.max_message_bytes)?;
    let tiers: Vec<_> = config.tiers.values().cloned().collect();
    let mut away = Vec::new();
    for endpoint in &settings.endpoints {
        match probe::probe(endpoint, &settings, &tiers).await {
            Ok(probed) => return Ok(told(&probed)),
            Err(error) => away.push(error.to_string()),
        }
    }
    Ok(Side::away("probe", &away.join("\n  ")))
}

fn told(probed: &[Probed]) -> Side {
    let mut side = Side { text: "probe: no tier has a delay queue\n".to_owned(), code: OK };
    if !probed.is_empty() {
        side.text = "probe: one message with a delay of 1s through each kind of delay queue\n".to_owned();
    }
    for Probed { tiers, kind, took } in probed {
        let said = match took {
            Ok(took) => format!("arrived after {} ms", took.as_millis()),
            Err(error) => {
                side.code = FAILED;
                format!("did not arrive: {error}")
            }
        };
        side.text.push_str(&format!("  {kind} (tier {}): {said}\n", tiers.join(", ")));
    }
    side
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_node_says_is_told_once_and_what_one_says_by_its_place() {
        let said = |notes: &[&str]| Inspection {
            problems: Vec::new(),
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        };
        let mut first = said(&["a"]);
        also(&mut first, said(&["a", "b"]), "mq2:5672");
        assert_eq!(first.notes, ["a", "at mq2:5672, unlike the one before: b"]);
    }
}
