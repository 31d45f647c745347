//! `duebox status`: the verdict first, then what waits. Works with the daemon down, and with the database down.

use super::pause::told;
use super::{FAILED, OK, database, load, print};
use crate::admin::metrics::Backlog;
use crate::admin::status::{Daemon, Problem};
use crate::config::Config;
use crate::outbox::count::{self, Overview};
use crate::outbox::inspect;
use crate::outbox::migrate::quote_ident;
use crate::outbox::pauses::{self, Pause};
use crate::tier::Kind;
use crate::words::{age, shown};
use anyhow::Context;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn run(args: &Args, path: Option<&Path>) -> anyhow::Result<u8> {
    let loaded = match load(path)? {
        Ok(loaded) => loaded,
        Err(code) => return Ok(code),
    };
    let (daemon, database) = tokio::join!(ask_daemon(&loaded.config), ask_database(&loaded.config));
    let status = Status { config: &loaded.config, daemon, database };
    let (good, verdict) = status.verdict();
    let text = if args.json { format!("{:#}\n", status.json(good, &verdict)) } else { status.text(&verdict) };
    print(&text)?;
    Ok(if good { OK } else { FAILED })
}

struct Status<'a> {
    config: &'a Config,
    daemon: anyhow::Result<Daemon>,
    database: anyhow::Result<Database>,
}

/// Something that is not as it should be.
struct Wrong {
    grade: Grade,
    text: String,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Nothing flows.
    Stops,
    /// Something does not.
    Wrong,
    /// Nobody here can mend it, and nothing is late because of it.
    Mild,
}

impl Grade {
    fn of(self, text: String) -> Wrong {
        Wrong { grade: self, text }
    }
}

/// What the database says.
struct Database {
    backlog: Vec<Backlog>,
    overview: Overview,
    pauses: Vec<Pause>,
}

impl Status<'_> {
    /// Everything that is not as it should be, the worst first.
    fn wrong(&self) -> Vec<Wrong> {
        let mut wrong = self.of_daemon();
        if let Ok(database) = &self.database {
            wrong.extend(self.of_database(database));
        }
        wrong.sort_by_key(|wrong| wrong.grade);
        wrong
    }

    /// What is wrong with the daemon, and as it sees it.
    fn of_daemon(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        match &self.daemon {
            Err(_) => wrong.push(Grade::Stops.of(format!("no daemon answers at {}", self.config.admin.listen))),
            Ok(daemon) => {
                if daemon.stopping {
                    wrong.push(Grade::Stops.of(format!("the daemon is stopping: {} in flight", daemon.in_flight)));
                } else if !daemon.ready && daemon.problems.is_empty() {
                    wrong.push(Grade::Stops.of("the daemon is starting".to_owned()));
                }
                wrong.extend(daemon.problems.iter().map(|problem| {
                    let grade = match problem {
                        Problem { needed: true, .. } => Grade::Stops,
                        Problem { mild: true, .. } => Grade::Mild,
                        Problem { .. } => Grade::Wrong,
                    };
                    grade.of(format!("{}: {}", problem.part, problem.reason))
                }));
            }
        }
        let told = |daemon: &Daemon| daemon.problems.iter().any(|problem| problem.part == "postgres");
        if let Err(error) = &self.database {
            if !self.daemon.as_ref().is_ok_and(told) {
                wrong.insert(0, Grade::Stops.of(format!("{error:#}")));
            }
            let pauses = self.daemon.iter().flat_map(|daemon| daemon.pauses.iter().flatten());
            wrong.extend(pauses.map(|pause| Grade::Wrong.of(pause.to_string())));
        }
        wrong
    }

    /// What is wrong with what the database has.
    fn of_database(&self, Database { backlog, overview, pauses }: &Database) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        if !pauses.is_empty() {
            let paused = pauses.iter().map(paused).collect::<Vec<_>>().join(", ");
            wrong.push(Grade::Wrong.of(format!("paused: {paused}")));
        }
        let named = self.daemon.is_ok();
        let unknown = backlog.iter().filter(|row| !named && !self.config.tiers.contains_key(&row.tier));
        wrong.extend(unknown.map(|row| {
            let count = row.backlog + row.held;
            Grade::Wrong.of(format!(
                "{count} row(s) name tier '{}', which relay.toml does not have; nothing to do if another one on this schema does",
                row.tier
            ))
        }));
        if overview.parked > 0 {
            let schema = &self.config.postgres.schema;
            wrong.push(Grade::Wrong.of(format!(
                "{} row(s) parked; why: select message_id, tier, key, last_error from {schema}.outbox where parked_at \
                 is not null; cured: select {schema}.requeue(message_id) from ... of those",
                overview.parked
            )));
        }
        wrong
    }

    /// Whether all is well, and the one line that says so. What only somebody else has to see to is no failure of ours.
    fn verdict(&self) -> (bool, String) {
        match self.wrong().first() {
            None => (true, "ok: relaying".to_owned()),
            Some(Wrong { grade: Grade::Mild, text }) => (true, format!("ok, but: {text}")),
            Some(Wrong { text, .. }) => (false, format!("not ok: {text}")),
        }
    }

    /// Delay queues that an earlier configuration declared and this one does not use: they only drain.
    fn old_queues(&self) -> Vec<&String> {
        let Ok(Database { overview, .. }) = &self.database else { return Vec::new() };
        let current: Vec<&String> = self
            .config
            .tiers
            .values()
            .filter_map(|tier| match &tier.kind {
                Kind::Queue { queue, .. } => Some(&queue.name),
                Kind::Direct | Kind::Hold { .. } | Kind::Plugin { .. } => None,
            })
            .collect();
        overview.queues.iter().filter(|queue| !current.contains(queue)).collect()
    }

    fn text(&self, verdict: &str) -> String {
        let mut text = format!("{verdict}\n");
        // What keeps everything from flowing goes before what waits because of it, the rest after.
        let (stops, rest): (Vec<_>, Vec<_>) =
            self.wrong().into_iter().skip(1).partition(|wrong| wrong.grade == Grade::Stops);
        text.extend(stops.iter().map(|wrong| format!("        {}\n", wrong.text)));
        if let Ok(Database { backlog, overview, pauses }) = &self.database {
            let mut table = comfy_table::Table::new();
            table.load_style(comfy_table::presets::NOTHING).set_header(["TIER", "BACKLOG", "HELD", "OLDEST"]);
            for row in Backlog::complete(backlog, self.config.tiers.keys()) {
                let age = row.oldest_age.map_or_else(|| "-".to_owned(), age);
                table.add_row([row.tier, row.backlog.to_string(), row.held.to_string(), age]);
            }
            text.push_str(&format!("{table}\nparked {}, relays listening {}\n", overview.parked, overview.relays));
            text.extend(pauses.iter().map(|pause| format!("paused {}\n", told(pause))));
        }
        if let Ok(daemon) = &self.daemon {
            let broker = daemon.broker.as_deref().unwrap_or("not connected");
            text.push_str(&format!("rabbitmq {broker}\n"));
            text.push_str(&format!("relay {}\nin flight {}\n", daemon.wakefulness(), daemon.in_flight));
        }
        text.extend(rest.iter().map(|wrong| format!("also: {}\n", wrong.text)));
        let schema = quote_ident(&self.config.postgres.schema);
        for queue in self.old_queues() {
            text.push_str(&format!(
                "old delay queue '{queue}', unless another relay.toml on this schema has it: it only drains; when it is empty: rabbitmqctl delete_queue '{queue}', then \
                 delete from {schema}.state where name = 'queue.{queue}'\n"
            ));
        }
        text
    }

    fn json(&self, good: bool, verdict: &str) -> Value {
        let database = match &self.database {
            Err(error) => json!({ "error": format!("{error:#}") }),
            Ok(Database { backlog, overview, pauses }) => json!({
                "tiers": Backlog::complete(backlog, self.config.tiers.keys()).iter().map(|row| json!({
                    "tier": row.tier, "backlog": row.backlog, "held": row.held,
                    "oldest_age_seconds": row.oldest_age.map(|age| age.as_secs_f64()),
                })).collect::<Vec<_>>(),
                "parked": overview.parked,
                "pauses": pauses,
                "relays": overview.relays,
                "old_queues": self.old_queues(),
            }),
        };
        let daemon = match &self.daemon {
            Ok(daemon) => json!(daemon),
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        let wrong: Vec<String> = self.wrong().into_iter().map(|wrong| wrong.text).collect();
        json!({ "ok": good, "verdict": verdict, "wrong": wrong, "daemon": daemon, "database": database })
    }
}

fn paused(pause: &Pause) -> String {
    let reason = pause.reason.as_ref().map_or_else(String::new, |reason| format!(" ({})", shown(reason)));
    format!("{} for {}{reason}", shown(&pause.what), age(pause.age()))
}

async fn ask_database(config: &Config) -> anyhow::Result<Database> {
    let db = database(config)?;
    let found = inspect::inspect(&db).await?;
    anyhow::ensure!(found.problems.is_empty(), "{}", found.problems.join("; "));
    let backlog = count::backlog(&db).await?;
    let overview = count::overview(&db).await?;
    Ok(Database { backlog, overview, pauses: pauses::list(&db).await? })
}

/// Asks the daemon over HTTP; a client library would be many times the size of this question.
async fn ask_daemon(config: &Config) -> anyhow::Result<Daemon> {
    let address = config.admin.listen;
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET /status HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, ask).await.context("no answer in time")??;
    let (_, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    serde_json::from_str(body).context("not the answer of a duebox")
}
