//! `[postgres]` and `[rabbitmq]`: the two ends.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::amqp_url::AmqpUrl;
use super::management_url::ManagementUrl;
use super::secret::{PasswordError, mask_url, read_password};
use super::sections::password_file;
use super::shape::{Raw, Shape, choice, duration, list, quote, text, whole};
use super::table::Table;
use crate::outbox::connect::reads;

/// Longest schema name: Postgres cuts names at 63 bytes, and ours appear inside longer ones.
const MAX_SCHEMA: usize = 50;
/// Connections beside the one a worker: for the isolated worker, counting and sweeping.
const POOL_RESERVE: usize = 3;
/// Longest URL; far above any real one.
const MAX_URL: usize = 4096;

/// `[postgres]`: where the outbox is.
#[derive(Debug, Clone)]
pub struct Postgres {
    /// URL as libpq takes it; of several servers in it, the first that takes writes is used.
    pub url: SecretString,
    /// URL of the connection that listens, where `url` leads to a transaction pooler.
    pub listen_url: Option<SecretString>,
    /// File with the password of both URLs.
    pub password_file: Option<PathBuf>,
    /// Schema of the outbox, at most 50 bytes.
    pub schema: String,
    /// Most connections of the pool, 2 to 1,000 and at least one more than workers and closers.
    pub pool_size: usize,
    /// Longest time to connect, 100 ms to 5 min.
    pub connect_timeout: Duration,
    /// Longest time of one statement, 100 ms to 5 min.
    pub statement_timeout: Duration,
}

impl Postgres {
    /// Reads the table; `None` without a URL, which is noted. `workers` is `relay.workers`, `closers` how many
    /// connections the closer holds.
    pub(crate) fn read(mut table: Table<'_>, workers: usize, closers: usize) -> Option<Self> {
        let timeout = duration(Duration::from_millis(100)..=Duration::from_secs(300));
        let url = table.required("url", &postgres_url(), "where the outbox is, such as postgres://duebox@db/shop");
        let listen_url = table.optional("listen_url", &postgres_url());
        let password_file = password_file(&mut table);
        let schema = table.or("schema", "duebox".to_owned(), &text(MAX_SCHEMA));
        let pool_size = table.or("pool_size", workers + closers + POOL_RESERVE, &whole(2..=1_000));
        if pool_size <= workers + closers {
            let and = if closers == 0 { "" } else { " and closer.concurrency" };
            let least = workers + closers + 1;
            table.problem("pool_size", format!("must be at least {least}: one more than relay.workers{and}"));
        }
        let connect_timeout = table.or("connect_timeout", Duration::from_secs(5), &timeout);
        let statement_timeout = table.or("statement_timeout", Duration::from_secs(10), &timeout);
        table.finish();
        Some(Self { url: url?, listen_url, password_file, schema, pool_size, connect_timeout, statement_timeout })
    }

    /// The password beside the URLs: of `password_file`, else of `$CREDENTIALS_DIRECTORY/postgres_password`, else none.
    /// It goes before one inside a URL.
    ///
    /// # Errors
    /// When the file cannot be read or is empty.
    pub fn password(&self) -> Result<Option<SecretString>, PasswordError> {
        read_password(self.password_file.as_deref(), "postgres_password")
    }
}

/// How a Postgres URL is written.
const SUCH_AS: &str = "write it such as postgres://duebox@db/shop";

/// A Postgres URL; all but its TLS mode and which server it asks for is left to the driver.
fn postgres_url() -> Shape<SecretString> {
    let read = |raw: &Raw<'_>| {
        let url = raw.text().ok_or("must be a text in quotes")?;
        if url.is_empty() {
            return Err(format!("must not be empty: {SUCH_AS}"));
        }
        if url.len() > MAX_URL {
            return Err(format!("must be a Postgres URL of 1 to {MAX_URL} bytes"));
        }
        if url.contains("://") && !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err("must start with postgres:// or postgresql://".to_owned());
        }
        let host = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
        if host.matches('@').count() > 1 {
            return Err("must have one '@', before the host: write one in a password as %40".to_owned());
        }
        if url.contains("://") && url.contains('#') {
            // The driver would take the rest for a part of the database's name.
            return Err("must not contain '#': write %23".to_owned());
        }
        if !matches!(parameter(url, "sslmode"), None | Some("disable" | "prefer")) {
            return Err("must have sslmode disable or prefer: TLS comes with a later version".to_owned());
        }
        // The default says it already; any other word, `any` too, would ask for a server that cannot be used.
        if !matches!(parameter(url, "target_session_attrs"), None | Some("read-write" | "primary")) {
            return Err("must have target_session_attrs read-write (the default) or primary: duebox writes".to_owned());
        }
        reads(url).map_err(|why| format!("cannot be read ({why}); {SUCH_AS}"))?;
        Ok(SecretString::from(url))
    };
    let show = |url: &SecretString| quote(&mask_url(url.expose_secret()));
    Shape { mask: Some(|raw| quote(&raw.text().map_or_else(|| "***".to_owned(), mask_url))), ..Shape::new(show, read) }
}

/// The value of a parameter in a URL or in a `key=value` string.
fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let pairs = url.split_once("://").map_or(Some(url), |(_, rest)| rest.rsplit_once('?').map(|(_, query)| query))?;
    let mut values = pairs.split(['&', ' ']).filter_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='));
    Some(values.next_back()?.trim_matches('\''))
}

/// What is done about exchanges and queues that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// They are declared.
    Declare,
    /// They are named, and nothing is made: they are the user's.
    Verify,
    /// Nothing is looked at: for a user who may write and do nothing else.
    Off,
}

/// `[rabbitmq]`: where messages go.
#[derive(Debug, Clone)]
pub struct RabbitMq {
    /// Nodes, tried in turn.
    pub urls: Vec<AmqpUrl>,
    /// File with the password of all URLs.
    pub password_file: Option<PathBuf>,
    /// Heartbeat, 1 s to 5 min in whole seconds: a silent connection is dead after two.
    pub heartbeat: Duration,
    /// Longest time to connect and log in, 100 ms to 5 min.
    pub connect_timeout: Duration,
    /// What is done about exchanges and queues that are missing.
    pub topology: Topology,
    /// Time between two checks of exchanges and queues, 100 ms to 1 h.
    pub topology_check: Duration,
    /// The broker's management API, for what AMQP cannot tell `check --connect`.
    pub management_url: Option<ManagementUrl>,
}

impl RabbitMq {
    /// Reads the table; `None` without a URL, which is noted.
    pub(crate) fn read(mut table: Table<'_>) -> Option<Self> {
        let tenth = Duration::from_millis(100);
        let minutes = Duration::from_secs(300);
        let urls =
            table.required("urls", &amqp_urls(), "where messages go, such as [\"amqp://duebox@broker:5672/shop\"]");
        let password_file = password_file(&mut table);
        let heartbeat = table.or("heartbeat", Duration::from_secs(10), &duration(Duration::from_secs(1)..=minutes));
        if heartbeat.subsec_nanos() != 0 {
            table.problem("heartbeat", "must be whole seconds: AMQP counts it so");
        }
        let connect_timeout = table.or("connect_timeout", Duration::from_secs(5), &duration(tenth..=minutes));
        let topology = table.or("topology", Topology::Declare, &topology());
        let hour = Duration::from_secs(3_600);
        let topology_check = table.or("topology_check", Duration::from_secs(30), &duration(tenth..=hour));
        let management_url = table.optional("management_url", &management_url());
        table.finish();
        Some(Self { urls: urls?, password_file, heartbeat, connect_timeout, topology, topology_check, management_url })
    }

    /// The password beside the URLs: of `password_file`, else of `$CREDENTIALS_DIRECTORY/amqp_password`, else none.
    /// It goes before one inside a URL.
    ///
    /// # Errors
    /// When the file cannot be read or is empty.
    pub fn password(&self) -> Result<Option<SecretString>, PasswordError> {
        read_password(self.password_file.as_deref(), "amqp_password")
    }
}

/// The URL of the management API.
fn management_url() -> Shape<ManagementUrl> {
    let read = |raw: &Raw<'_>| ManagementUrl::parse(raw.text().ok_or("must be a text in quotes")?);
    let show = |url: &ManagementUrl| quote(&url.to_string());
    Shape { mask: Some(|raw| quote(&raw.text().map_or_else(|| "***".to_owned(), mask_url))), ..Shape::new(show, read) }
}

/// A list of AMQP URLs.
fn amqp_urls() -> Shape<Vec<AmqpUrl>> {
    let read = |raw: &Raw<'_>| AmqpUrl::parse(raw.text().ok_or("must be a text in quotes")?);
    let show = |url: &AmqpUrl| quote(&url.to_string());
    let one = Shape { mask: Some(mask_urls), ..Shape::new(show, read) };
    list(one, |urls| {
        let shown: Vec<String> = urls.iter().map(|url| quote(&url.to_string())).collect();
        format!("[{}]", shown.join(", "))
    })
}

/// What was written where AMQP URLs are wanted, without the secrets.
fn mask_urls(raw: &Raw<'_>) -> String {
    let Some(values) = raw.list() else {
        return quote(&raw.text().map_or_else(|| "***".to_owned(), mask_url));
    };
    let shown = values.iter().map(|value| quote(&value.as_str().map_or_else(|| "***".to_owned(), mask_url)));
    format!("[{}]", shown.collect::<Vec<_>>().join(", "))
}

fn topology() -> Shape<Topology> {
    const NAMES: [(&str, Topology); 3] =
        [("declare", Topology::Declare), ("verify", Topology::Verify), ("off", Topology::Off)];
    choice(&NAMES, |topology| match topology {
        Topology::Declare => quote("declare"),
        Topology::Verify => quote("verify"),
        Topology::Off => quote("off"),
    })
}
