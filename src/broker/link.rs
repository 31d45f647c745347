//! The link: one supervised connection. It is made again for ever, with growing waits and no limit of attempts.

mod life;
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
use crate::wake::Wake;
pub use settings::{Endpoint, Settings};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long to wait between two connects. Short at first, for a connection that worked is lost to a restart or a reset
/// far more often than to something that lasts; those in a row that brought nothing wait up to the cap.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_secs(5) };

/// How long a close may take. While the broker blocks a connection its close hangs too, and so does one of a connection
/// that was reset a moment ago (measured); then the socket is cut.
const CLOSE: Duration = Duration::from_secs(1);

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
    /// Why there is no connection.
    trouble: Mutex<Option<String>>,
    /// Tiers whose topology is not what it must be: nothing is published for them.
    closed: Mutex<BTreeSet<String>>,
    /// Target queues that have been there.
    targets: Mutex<BTreeSet<String>>,
    /// What was declared, for those who keep the list of our queues.
    pub declared: watch::Sender<BTreeSet<String>>,
    /// Rung when a tier reopens: its rows rang while nothing could be published for it.
    wake: Arc<Wake>,
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
        wake: Arc<Wake>,
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
            trouble: Mutex::default(),
            closed: Mutex::default(),
            targets: Mutex::default(),
            declared: watch::Sender::default(),
            wake,
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
        let (mut turn, mut failures, mut first) = (0_usize, 0_u32, true);
        while !self.stop.raised() {
            if self.on_demand {
                self.health.retire(self.name);
                if self.stop.or(self.wanted.notified()).await.is_none() {
                    break;
                }
            }
            self.health.beat(self.name, self.settings.stall());
            let endpoint = &self.settings.endpoints[turn % self.settings.endpoints.len()];
            let connected = Box::pin(self.stop.or(self.connect(endpoint))).await;
            match connected {
                None => break,
                Some(Ok(up)) => {
                    let up = Arc::new(up);
                    let reason = self.life(Arc::clone(&up), tiers, &mut first).await?;
                    if up.proved() {
                        failures = 0;
                    }
                    self.lost(&reason);
                }
                Some(Err(error)) => self.lost(&error.to_string()),
            }
            turn = turn.wrapping_add(1);
            failures = failures.saturating_add(1);
            if self.stop.or(tokio::time::sleep(RECONNECT.wait(failures))).await.is_none() {
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
        if !self.on_demand {
            self.health.set_broker(Some(format!("{}:{}", endpoint.host, endpoint.port)));
        }
        Ok(Up::new(connection, cut))
    }

    /// Why there is no connection, as the end of a sentence.
    pub(super) fn trouble(&self) -> String {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
    }

    fn lost(&self, reason: &str) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        if self.on_demand {
            tracing::info!("{}: {reason}", self.name);
            // Whoever still wants a channel waits on the state; the next connect is for them.
            if self.state.receiver_count() > 0 {
                self.wanted.notify_one();
            }
            return;
        }
        self.away();
        self.health.set_broker(None);
        if !self.stop.raised() {
            self.health.problem(&Part::RabbitMq, reason);
        }
    }

    /// Nothing can be published, and who consumes is unknown now: what is unknown is absent.
    fn away(&self) {
        self.metrics.set_up("rabbitmq", false);
        self.metrics.target_consumers.clear();
        self.health.forget_consumers();
    }

    /// One connection's life; returns why it ended.
    async fn life(&self, up: Arc<Up>, tiers: &[Tier], first: &mut bool) -> Result<String, String> {
        // One listener, always polled: two would split the events between them.
        let mut events = up.connection.events_listener();
        if !self.on_demand {
            let ensure = topology::ensure(&up.connection, &self.settings, tiers, self.known());
            let report = match self.patient(ensure).await {
                None => return Ok(self.close(up, "stopping".to_owned()).await),
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
        self.state.send_replace(Some(Arc::clone(&up)));
        let reason = self.watch(&up, tiers, &mut events).await;
        self.state.send_replace(None);
        Ok(self.close(up, reason).await)
    }

    /// Waits for `work`, whose every step has a bound of its own, or for the stop; shows signs of life meanwhile.
    async fn patient<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            self.health.beat(self.name, self.settings.stall());
            match self.stop.or(tokio::time::timeout(self.settings.connect_timeout, &mut work)).await? {
                Ok(done) => return Some(done),
                Err(_still_at_it) => {}
            }
        }
    }

    /// Waits until it is connected, and what it declares has been declared.
    pub async fn reached(&self) {
        drop(self.state.subscribe().wait_for(Option::is_some).await);
    }

    /// Lets a stopping link close its connection: nobody publishes any more.
    pub fn release(&self) {
        self.state.send_replace(None);
    }

    /// Queues that have been there before.
    fn known(&self) -> BTreeSet<String> {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        self.declared.borrow().union(&targets).cloned().collect()
    }

    /// Takes over what a check of the topology found.
    fn note(&self, tiers: &[Tier], report: &Report) {
        let closed: BTreeSet<String> = report.problems.iter().filter(|p| p.mismatch).map(|p| p.tier.clone()).collect();
        let before =
            std::mem::replace(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner), closed.clone());
        if !before.is_subset(&closed) {
            self.wake.alarm();
        }
        report.publish(tiers, &self.settings.consumed_here, &self.health, &self.metrics);
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).extend(report.targets.iter().cloned());
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
