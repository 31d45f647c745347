//! A relay with a fault proxy on either side of it and deadlines of seconds, so that a test of an outage takes seconds.

use super::daemon::Daemon;
use super::db::Db;
use super::proxy::Proxy;
use super::relay::START;
use super::rig::Rig;
use super::wait::eventually;
use std::time::Duration;

/// `[relay] batch_deadline` of every relay here, unless a test says otherwise.
pub(crate) const BATCH_DEADLINE: Duration = Duration::from_secs(2);

/// `[relay] shutdown_grace` of every relay here, unless a test says otherwise: a batch's deadline, a statement that is not
/// answered and a close that is not, one after the other, and room for a busy machine.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// A rig, both proxies, and the role that relays run as.
pub(crate) struct Between {
    pub(crate) rig: Rig,
    /// In front of the database; the test itself goes past it.
    pub(crate) postgres: Proxy,
    /// In front of the broker; the test itself goes past it.
    pub(crate) rabbit: Proxy,
    relay: String,
}

/// What a test changes in the relay.toml.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tables<'a> {
    /// Lines of `[relay]`.
    pub(crate) relay: &'a str,
    /// Lines of `[outbox]`.
    pub(crate) outbox: &'a str,
    /// Lines of `[postgres]`.
    pub(crate) postgres: &'a str,
    /// Tables after those; none: a tier `now` straight to the queue `due`.
    pub(crate) tiers: &'a str,
}

/// A tier straight to a queue.
pub(crate) const NOW: &str = "[tier.now]\ntarget = { queue = \"due\" }\n";

impl Between {
    /// Applies the schema and puts the proxies up.
    pub(crate) fn new(rig: Rig) -> Self {
        let relay = rig.create_role("relay");
        rig.migrate(&["--grant-relay", &relay]);
        let (postgres, rabbit) = (Proxy::new(rig.postgres().port()), Proxy::new(rig.rabbit().port()));
        Self { rig, postgres, rabbit, relay }
    }

    /// The role that relays run as.
    pub(crate) fn role(&self) -> &str {
        &self.relay
    }

    /// Starts a relay through the proxies; does not wait for it to be ready.
    #[track_caller]
    pub(crate) fn launch(&self, tables: Tables<'_>) -> Daemon {
        Daemon::start(&self.rig, &self.toml(tables, self.postgres.port(), self.rabbit.port()))
    }

    /// Starts a relay through the proxies and waits until it is ready, and each of its workers too.
    #[track_caller]
    pub(crate) fn start(&self, tables: Tables<'_>) -> Daemon {
        self.started(self.postgres.port(), self.rabbit.port(), tables)
    }

    /// The same as process 1 of a namespace of its own.
    #[track_caller]
    pub(crate) fn start_first(&self, tables: Tables<'_>) -> Daemon {
        let toml = self.toml(tables, self.postgres.port(), self.rabbit.port());
        self.working(tables, || Daemon::start_first(&self.rig, &toml))
    }

    /// Starts a relay past the proxies and waits until it is ready, and each of its workers too.
    #[track_caller]
    pub(crate) fn start_past(&self, tables: Tables<'_>) -> Daemon {
        self.started(self.rig.postgres().port(), self.rig.rabbit().port(), tables)
    }

    #[track_caller]
    fn started(&self, postgres_port: u16, rabbit_port: u16, tables: Tables<'_>) -> Daemon {
        let toml = self.toml(tables, postgres_port, rabbit_port);
        self.working(tables, || Daemon::start(&self.rig, &toml))
    }

    /// A fault that comes before a worker has its channel would find nothing in flight.
    #[track_caller]
    fn working(&self, tables: Tables<'_>, start: impl FnOnce() -> Daemon) -> Daemon {
        let channels = self.channels() + workers(tables.relay);
        let daemon = start();
        daemon.wait_ready(START);
        eventually("each worker has a channel", START, || self.channels() >= channels);
        daemon
    }

    /// How many channels of this vhost are in confirm mode.
    fn channels(&self) -> usize {
        let count = format!(
            "length([c || [{{vhost, <<\"{}\">>}}, {{confirm, true}}] <- rabbit_channel:info_all([vhost, confirm])])",
            self.rig.name()
        );
        self.rig.rabbit().eval(&count).trim().parse().unwrap()
    }

    /// A session of the superuser: what other sessions do is hidden from everybody else.
    pub(crate) async fn superuser(&self) -> Db {
        self.rig.db_as("postgres").await
    }

    fn toml(&self, tables: Tables<'_>, postgres_port: u16, rabbit_port: u16) -> String {
        let Tables { relay, outbox, postgres, tiers } = tables;
        let mut base = self.rig.relay_base(&self.relay);
        (base.postgres_port, base.rabbit_port) = (postgres_port, rabbit_port);
        let patience = if postgres.contains("statement_timeout") { "" } else { "statement_timeout = \"2s\"\n" };
        let connect = if postgres.contains("connect_timeout") { "" } else { "connect_timeout = \"2s\"\n" };
        base.postgres = format!("{connect}{patience}{postgres}");
        base.rabbitmq = "connect_timeout = \"2s\"\nheartbeat = \"2s\"\n".to_owned();
        let relay = [("batch_deadline", "\"2s\""), ("shutdown_grace", "\"10s\""), ("batch_rows", "50")]
            .iter()
            .filter(|(key, _)| !relay.contains(key))
            .fold(relay.to_owned(), |lines, (key, value)| format!("{lines}\n{key} = {value}"));
        let tiers = if tiers.is_empty() { NOW } else { tiers };
        format!("{}[relay]\n{relay}\n\n[outbox]\n{outbox}\n\n{tiers}", base.render())
    }
}

/// `workers` of these lines.
fn workers(relay: &str) -> usize {
    let line = relay.lines().find_map(|line| line.strip_prefix("workers = "));
    line.map_or(4, |workers| workers.parse().unwrap())
}

/// Messages a worker has in flight at most, times the workers: what a fault may send twice.
pub(crate) const WINDOW: usize = 4 * 50;

/// A counter of a tier, 0 while it is absent.
pub(crate) fn counter(daemon: &Daemon, name: &str, tier: &str) -> f64 {
    daemon.metric(&format!("duebox_{name}_total{{tier=\"{tier}\"}}")).unwrap_or(0.0)
}
