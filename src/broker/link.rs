//! The link: one supervised connection. It is made again for ever, with growing waits and no limit of attempts.

mod settings;
mod up;

use super::error::Error;
use super::socket;
use super::topology::{self, Report};
use crate::admin::health::{Health, Part};
use crate::admin::metrics::{BySide, Metrics};
use crate::backoff::Backoff;
use crate::stop::Stop;
use crate::tier::Tier;
use futures_util::StreamExt;
use lapin::Event;
pub use settings::{Endpoint, Settings};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long to wait between two connects.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// How long a close may take. While the broker blocks a connection its close hangs too (measured), and then the
/// socket is cut.
const CLOSE: Duration = Duration::from_secs(2);

/// How often the state of the connection is looked at beside its events.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row without any user, after which a connection made on demand is closed.
const IDLE: u32 = 30;

pub(super) use up::Up;

/// One supervised connection.
#[derive(Debug)]
pub struct Link {
    name: &'static str,
    pub(super) settings: Settings,
    pub(super) state: watch::Sender<Option<Arc<Up>>>,
    /// Asks for a check of the topology now.
    pub(super) check: Notify,
    /// Somebody wants a channel; only a link that connects on demand waits for it.
    pub(super) wanted: Notify,
    on_demand: bool,
    /// Tiers whose topology is not what it must be: nothing is published for them.
    closed: Mutex<BTreeSet<String>>,
    /// What was declared, for those who keep the list of our queues.
    pub declared: watch::Sender<BTreeSet<String>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: Stop,
}

impl Link {
    /// A link that is not connected yet; `on_demand` makes it wait until somebody wants a channel.
    #[must_use]
    pub fn new(
        name: &'static str,
        settings: Settings,
        on_demand: bool,
        (health, metrics): (Arc<Health>, Arc<Metrics>),
        stop: Stop,
    ) -> Self {
        Self {
            name,
            settings,
            state: watch::Sender::new(None),
            check: Notify::new(),
            wanted: Notify::new(),
            on_demand,
            closed: Mutex::default(),
            declared: watch::Sender::default(),
            health,
            metrics,
            stop,
        }
    }

    /// Whether nothing may be published for `tier` because of its topology.
    pub(super) fn closed(&self, tier: &str) -> bool {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).contains(tier)
    }

    /// Keeps the connection up until the stop.
    ///
    /// # Errors
    /// At the first connect, the broker has a queue or exchange that differs from the configuration: this does not
    /// heal by waiting, and the text says what to do.
    pub async fn run(&self, tiers: &[Tier]) -> Result<(), String> {
        // Apart from the failures, which begin anew with each connection: a loss goes on to the next endpoint as well.
        let (mut failures, mut turn, mut first) = (0_usize, 0_usize, true);
        while !self.stop.raised() {
            if self.on_demand {
                self.health.retire(self.name);
                if self.stop.or(self.wanted.notified()).await.is_none() {
                    break;
                }
            }
            self.health.beat(self.name, self.settings.stall(tiers.len()));
            let endpoint = &self.settings.endpoints[turn % self.settings.endpoints.len()];
            let connected = Box::pin(self.stop.or(self.connect(endpoint))).await;
            match connected {
                None => break,
                Some(Ok(up)) => {
                    let reason = self.life(Arc::new(up), tiers, &mut first, &mut failures).await?;
                    self.lost(&reason);
                }
                Some(Err(error)) => self.lost(&error.to_string()),
            }
            failures += 1;
            turn = turn.wrapping_add(1);
            let attempt = u32::try_from(failures).unwrap_or(u32::MAX);
            if self.stop.or(tokio::time::sleep(RECONNECT.wait(attempt))).await.is_none() {
                break;
            }
        }
        self.health.retire(self.name);
        Ok(())
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Up, Error> {
        let Settings { heartbeat, connect_timeout, .. } = self.settings;
        let (connection, cut) = socket::connect(endpoint, self.name, heartbeat, connect_timeout).await?;
        tracing::info!(host = endpoint.host, port = endpoint.port, "{}: connected to RabbitMQ", self.name);
        Ok(Up::new(connection, cut))
    }

    fn lost(&self, reason: &str) {
        if self.on_demand {
            tracing::info!("{}: {reason}", self.name);
            // Whoever still wants a channel waits on the state; the next connect is for them.
            if self.state.receiver_count() > 0 {
                self.wanted.notify_one();
            }
            return;
        }
        self.metrics.set_up("rabbitmq", false);
        // Who consumes is unknown now, and what is unknown is absent.
        self.metrics.target_consumers.clear();
        self.health.forget_consumers();
        if !self.stop.raised() {
            self.health.problem(&Part::RabbitMq, reason);
        }
    }

    /// One connection's life; returns why it ended.
    async fn life(
        &self,
        up: Arc<Up>,
        tiers: &[Tier],
        first: &mut bool,
        failures: &mut usize,
    ) -> Result<String, String> {
        // One listener, always polled: two would split the events between them.
        let mut events = up.connection.events_listener();
        if !self.on_demand {
            let report =
                match self.stop.or(topology::ensure(&up.connection, &self.settings, tiers, &self.known())).await {
                    None => return Ok("stopping".to_owned()),
                    Some(Err(error)) => return Ok(self.close(up, error.to_string()).await),
                    Some(Ok(report)) => report,
                };
            if std::mem::take(first) {
                if let Some(mismatch) = report.mismatches() {
                    self.close(up, String::new()).await;
                    return Err(mismatch);
                }
            } else {
                self.metrics.reconnects.get_or_create(&BySide { side: "rabbitmq" }).inc();
            }
            self.note(tiers, &report);
            self.metrics.set_up("rabbitmq", true);
            self.health.well(&Part::RabbitMq);
        }
        *failures = 0;
        self.state.send_replace(Some(Arc::clone(&up)));
        let reason = self.watch(&up, tiers, &mut events).await;
        self.state.send_replace(None);
        Ok(self.close(up, reason).await)
    }

    /// Watches a connection until it ends, or must.
    async fn watch(&self, up: &Arc<Up>, tiers: &[Tier], events: &mut (impl StreamExt<Item = Event> + Unpin)) -> String {
        let mut check = tokio::time::interval(self.settings.topology_check);
        check.reset();
        let mut look = tokio::time::interval(LOOK);
        let mut idle = 0;
        loop {
            self.health.beat(self.name, self.settings.stall(tiers.len()));
            let due = tokio::select! {
                () = self.stop.wait() => return self.drained().await,
                () = up.suspect.notified() => return "no answer to anything published over it".to_owned(),
                event = events.next() => {
                    if let Some(reason) = self.event(up, event) {
                        return reason;
                    }
                    false
                }
                _ = look.tick() => {
                    if !up.connection.status().connected() {
                        return "connection lost".to_owned();
                    }
                    // Held by us and by the state only: no publisher has been using it for a while.
                    idle = if self.on_demand && Arc::strong_count(up) <= 2 { idle + 1 } else { 0 };
                    if idle > IDLE {
                        return "no longer needed".to_owned();
                    }
                    false
                }
                _ = check.tick() => true,
                () = self.check.notified() => true,
            };
            if due && !self.on_demand && !*up.blocked.borrow() {
                check.reset();
                match topology::ensure(&up.connection, &self.settings, tiers, &self.known()).await {
                    Ok(report) => self.note(tiers, &report),
                    Err(error) => return error.to_string(),
                }
            }
        }
    }

    /// At the stop the connection stays up until the last publisher has let go of it.
    async fn drained(&self) -> String {
        let mut state = self.state.subscribe();
        // Ends when this task is dropped or when the application takes the state away: see `release`.
        let _gone = state.wait_for(Option::is_none).await;
        "stopping".to_owned()
    }

    /// Lets a stopping link close its connection: nobody publishes any more.
    pub fn release(&self) {
        self.state.send_replace(None);
    }

    /// What an event means; `Some` when the connection has ended.
    fn event(&self, up: &Up, event: Option<Event>) -> Option<String> {
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                up.blocked.send_replace(true);
                if self.on_demand {
                    return None;
                }
                self.metrics.set_up("rabbitmq", false);
                self.health.problem(&Part::RabbitMq, &format!("the broker blocks publishing: {reason}"));
                None
            }
            Some(Event::ConnectionUnblocked) => {
                up.blocked.send_replace(false);
                if self.on_demand {
                    return None;
                }
                self.metrics.set_up("rabbitmq", true);
                self.health.well(&Part::RabbitMq);
                None
            }
            // A channel's error arrives here too; that one is its publisher's.
            Some(Event::Error(error)) if !up.connection.status().connected() => Some(super::error::describe(&error)),
            Some(_) => None,
            None => Some("connection lost".to_owned()),
        }
    }

    /// Delay queues that have been there before.
    fn known(&self) -> BTreeSet<String> {
        self.declared.borrow().clone()
    }

    /// Takes over what a check of the topology found.
    fn note(&self, tiers: &[Tier], report: &Report) {
        let closed = report.problems.iter().filter(|p| p.mismatch).map(|p| p.tier.clone()).collect();
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        report.publish(tiers, &self.health, &self.metrics);
        self.declared.send_if_modified(|known| {
            let before = known.len();
            known.extend(report.declared.iter().cloned());
            known.len() > before
        });
    }

    /// Closes within [`CLOSE`]; what does not close is cut.
    async fn close(&self, up: Arc<Up>, reason: String) -> String {
        if up.connection.status().connected() && !*up.blocked.borrow() {
            let close = up.connection.close(200, "duebox closes".into());
            if tokio::time::timeout(CLOSE, close).await.is_err() {
                tracing::debug!("{}: the close had no answer, cutting the connection", self.name);
            }
        }
        // Sleeping workers may hold on to it for long.
        up.cut.now();
        reason
    }
}
