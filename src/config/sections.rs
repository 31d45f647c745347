//! One struct per table of `relay.toml`, all but tiers and rules. Bounds stand in the documentation of each field.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::shape::{boolean, bytes, choice, duration, quote, whole};
use super::table::Table;

/// Shortest period that we take: below it a loop is busy waiting.
const MIN_PERIOD: Duration = Duration::from_millis(100);
/// Longest timeout of an attempt to connect, and of the like: past it nobody waits.
const MAX_TIMEOUT: Duration = Duration::from_secs(300);
/// One hour.
const HOUR: Duration = Duration::from_secs(3_600);
/// One day.
const DAY: Duration = Duration::from_secs(86_400);

/// How waiting relays learn of new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// By LISTEN, with `poll` behind it.
    Notify,
    /// By polling alone: for poolers that swallow notifications, and for PREPARE TRANSACTION.
    Poll,
}

/// `[outbox]`: how new rows are noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbox {
    /// How waiting relays learn of new rows.
    pub wake: Wake,
    /// Longest time between two looks, 100 ms to 1 h: what a lost notification costs.
    pub poll: Duration,
}

impl Outbox {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        let wake = choice(&[("notify", Wake::Notify), ("poll", Wake::Poll)], |wake| match wake {
            Wake::Notify => quote("notify"),
            Wake::Poll => quote("poll"),
        });
        let outbox = Self {
            wake: table.or("wake", Wake::Notify, &wake),
            // A transaction pooler may swallow a notification; 5 s bounds that at next to no cost.
            poll: table.or("poll", Duration::from_secs(5), &duration(MIN_PERIOD..=HOUR)),
        };
        table.finish();
        outbox
    }
}

/// `[relay]`: how much is done at once, and how failures are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Claiming and publishing tasks, 1 to 64; each holds one database connection and one channel.
    pub workers: usize,
    /// Most rows of a batch, 1 to 10,000.
    pub batch_rows: usize,
    /// Most bytes of a batch, 1 KiB to 1 GiB; the first row is always taken.
    pub batch_bytes: usize,
    /// Longest time from the first publish of a batch to its last confirm, 100 ms to 5 min.
    pub batch_deadline: Duration,
    /// Attempts after which a row that cannot be routed is parked, 1 to 1,000.
    pub max_attempts: u32,
    /// Delay before the second attempt, 10 ms to 1 h.
    pub backoff_min: Duration,
    /// Longest delay between attempts, 10 ms to 1 day, not below `backoff_min`.
    pub backoff_max: Duration,
    /// Largest body in bytes, 1 KiB to 512 MiB: the broker closes the whole channel over a larger one.
    pub max_message_bytes: usize,
    /// Time to confirm and settle what is in flight after SIGTERM, 100 ms to 10 min.
    pub shutdown_grace: Duration,
}

impl Relay {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        const MIB: usize = 1 << 20;
        let backoff = duration(Duration::from_millis(10)..=DAY);
        let relay = Self {
            workers: table.or("workers", 4, &whole(1..=64)),
            batch_rows: table.or("batch_rows", 500, &whole(1..=10_000)),
            batch_bytes: table.or("batch_bytes", 8 * MIB, &bytes(1 << 10..=1 << 30)),
            batch_deadline: table.or("batch_deadline", Duration::from_secs(10), &duration(MIN_PERIOD..=MAX_TIMEOUT)),
            max_attempts: table.or("max_attempts", 20, &whole(1..=1_000)),
            backoff_min: table.or("backoff_min", Duration::from_secs(1), &duration(Duration::from_millis(10)..=HOUR)),
            backoff_max: table.or("backoff_max", Duration::from_secs(300), &backoff),
            // RabbitMQ 4 refuses more than 16 MiB unless it is told otherwise; its own limit is 512 MiB.
            max_message_bytes: table.or("max_message_bytes", 16 * MIB, &bytes(1 << 10..=512 << 20)),
            shutdown_grace: table.or(
                "shutdown_grace",
                Duration::from_secs(20),
                &duration(MIN_PERIOD..=2 * MAX_TIMEOUT),
            ),
        };
        if relay.backoff_max < relay.backoff_min {
            table.problem("backoff_max", "must not be shorter than backoff_min");
        }
        if relay.shutdown_grace <= relay.batch_deadline {
            table.reader.warnings.push(
                "relay.shutdown_grace is not longer than relay.batch_deadline: a stop may cut off a batch, whose rows \
                 are then published again"
                    .to_owned(),
            );
        }
        table.finish();
        relay
    }
}

/// `[sweep]`: the low-frequency pass over orders that the pipeline missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Whether this relay sweeps at all.
    pub enabled: bool,
    /// Time from the end of a pass to the next, 100 ms to 1 day.
    pub every: Duration,
    /// How far overdue an order must be before it counts as missed, 0 s to 1 day.
    pub grace: Duration,
    /// Most orders of one transaction, 1 to 10,000.
    pub batch: usize,
}

impl Sweep {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        let sweep = Self {
            enabled: table.or("enabled", true, &boolean()),
            every: table.or("every", Duration::from_secs(300), &sweep_every()),
            grace: table.or("grace", Duration::from_secs(60), &sweep_grace()),
            batch: table.or("batch", 500, &whole(1..=10_000)),
        };
        table.finish();
        sweep
    }
}

/// What `every` may be, in `[sweep]` and in rules.
pub(crate) fn sweep_every() -> super::shape::Shape<Duration> {
    duration(MIN_PERIOD..=DAY)
}

/// What `grace` may be, in `[sweep]` and in rules.
pub(crate) fn sweep_grace() -> super::shape::Shape<Duration> {
    duration(Duration::ZERO..=DAY)
}

/// `[admin]`: the HTTP side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Address to listen on; loopback only as long as there is no token.
    pub listen: SocketAddr,
}

impl Admin {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        const RULE: &str = "must be an address and a port, such as \"127.0.0.1:9187\"";
        let shape = super::shape::Shape::new(
            |listen: &SocketAddr| quote(&listen.to_string()),
            |raw| raw.text().and_then(|text| text.parse().ok()).ok_or_else(|| RULE.to_owned()),
        );
        let admin = Self { listen: table.or("listen", SocketAddr::from(([127, 0, 0, 1], 9187)), &shape) };
        if !admin.listen.ip().is_loopback() {
            table.problem(
                "listen",
                "must be a loopback address: in this version whoever reaches it may read it, order ids included",
            );
        }
        table.finish();
        admin
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text, coloured on a terminal.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`: what is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// How log lines look.
    pub format: LogFormat,
}

impl Log {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        const LEVELS: [(&str, &str); 5] =
            [("error", "error"), ("warn", "warn"), ("info", "info"), ("debug", "debug"), ("trace", "trace")];
        const FORMATS: [(&str, LogFormat); 3] =
            [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = choice(&FORMATS, |format| match format {
            LogFormat::Auto => quote("auto"),
            LogFormat::Text => quote("text"),
            LogFormat::Json => quote("json"),
        });
        let log = Self {
            level: table.or("level", "info", &choice(&LEVELS, |level| quote(level))).to_owned(),
            format: table.or("format", LogFormat::Auto, &format),
        };
        table.finish();
        log
    }
}

/// `password_file`, alike in `[postgres]` and `[rabbitmq]`.
pub(crate) fn password_file(table: &mut Table<'_>) -> Option<PathBuf> {
    table.optional("password_file", &super::shape::path())
}
