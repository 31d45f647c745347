//! `relay.toml`: one struct a table, every problem at once, and no secret in anything that is printed.
//!
//! The file lies below the environment: `DUEBOX_RELAY__WORKERS=8` goes before `workers` in `[relay]`. Tables are read
//! key by key (`config/table.rs`), each key with its shape (`config/shape.rs`).

mod amqp_url;
mod closer;
mod delay_queue;
mod layers;
mod management_url;
mod problem;
mod rule;
mod secret;
mod sections;
mod servers;
mod shape;
mod show;
mod table;
mod tiers;
mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use amqp_url::AmqpUrl;
pub use closer::Closer;
pub use management_url::ManagementUrl;
pub use problem::{ConfigError, Origin, Problem};
pub use rule::{Action, Event, Mode, Rule};
pub use secret::PasswordError;
pub use sections::{Admin, Log, LogFormat, Outbox, Relay, Sweep, Wake};
pub use servers::{Postgres, RabbitMq, Topology};
pub use show::{render, report};
pub use table::Entry;

use crate::tier::Tier;

/// Where the file is looked for when nobody names one.
const PLACES: [&str; 2] = ["relay.toml", "/etc/duebox/relay.toml"];

/// The whole configuration, checked and complete.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the outbox is.
    pub postgres: Postgres,
    /// Where messages go.
    pub rabbitmq: RabbitMq,
    /// How new rows are noticed.
    pub outbox: Outbox,
    /// How much is done at once, and how failures are tried again.
    pub relay: Relay,
    /// The named ways to be delayed, by name.
    pub tiers: BTreeMap<String, Tier>,
    /// Which orders are overdue, by the name of the rule.
    pub rules: BTreeMap<String, Rule>,
    /// The low-frequency pass over orders that the pipeline missed.
    pub sweep: Sweep,
    /// The consumer that applies a rule when its message falls due.
    pub closer: Closer,
    /// The HTTP side.
    pub admin: Admin,
    /// What is logged, and how.
    pub log: Log,
}

/// A configuration with what is to be said about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Every key with its effective value and origin, for [`render`]; secrets are masked.
    pub entries: Vec<Entry>,
    /// The file.
    pub path: PathBuf,
    /// What is allowed and probably not meant.
    pub warnings: Vec<String>,
}

/// Loads the file at `path`, else at `$DUEBOX_CONFIG`, else at `./relay.toml`, else at `/etc/duebox/relay.toml`, with
/// the variables of this process over it.
///
/// # Errors
/// When there is no file, it cannot be read, or something in it or in the variables is wrong.
pub fn load(path: Option<&Path>) -> Result<Loaded, ConfigError> {
    let named = path.map(Path::to_owned).or_else(|| std::env::var_os("DUEBOX_CONFIG").map(PathBuf::from));
    let found = named.or_else(|| PLACES.iter().map(PathBuf::from).find(|place| place.exists()));
    let Some(path) = found else {
        return Err(ConfigError::NotFound { searched: PLACES.iter().map(PathBuf::from).collect() });
    };
    // Bytes that are no text leave a replacement character, which is refused where it matters: in variables of ours.
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    load_with(&path, std::env::vars_os().map(|(name, value)| (text(name), text(value))))
}

/// Loads the file at `path` with these variables over it.
///
/// # Errors
/// When the file cannot be read, or something in it or in the variables is wrong.
pub fn load_with(path: &Path, variables: impl IntoIterator<Item = (String, String)>) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
    let layers = layers::merge(path, &text, variables).map_err(|problem| invalid(vec![problem]))?;
    let mut reader = table::Reader::new(layers.origins, layers.problems);
    let config = read(reader.root(layers.values));
    match config {
        Some(config) if reader.problems.is_empty() => {
            Ok(Loaded { config, entries: reader.entries, path: path.to_owned(), warnings: reader.warnings })
        }
        _ => Err(invalid(reader.problems)),
    }
}

/// Reads all tables; `None` where something that has no default is missing, which is noted.
fn read(mut root: table::Table<'_>) -> Option<Config> {
    let relay = Relay::read(root.section("relay"));
    let closer = Closer::read(root.section("closer"));
    let postgres = Postgres::read(root.section("postgres"), relay.workers, closer.connections());
    let rabbitmq = RabbitMq::read(root.section("rabbitmq"));
    let outbox = Outbox::read(root.section("outbox"));
    if outbox.wake == Wake::Poll && postgres.as_ref().is_some_and(|postgres| postgres.listen_url.is_some()) {
        let unused = "postgres.listen_url is not used: with outbox.wake = \"poll\" nobody listens";
        root.reader.warnings.push(unused.to_owned());
    }
    let theirs = rabbitmq.as_ref().is_some_and(|rabbitmq| rabbitmq.topology != Topology::Declare);
    let tiers = tiers::read_tiers(root.section("tier"), theirs);
    tiers::check_together(root.reader, &tiers);
    let sweep = Sweep::read(root.section("sweep"));
    let rules = rule::read_rules(root.section("rule"), &tiers, &sweep);
    closer.check(root.reader, &tiers, &rules, &sweep);
    let admin = Admin::read(root.section("admin"));
    let log = Log::read(root.section("log"));
    root.finish();
    let (postgres, rabbitmq) = (postgres?, rabbitmq?);
    Some(Config { postgres, rabbitmq, outbox, relay, tiers: tiers.built, rules, sweep, closer, admin, log })
}
