//! The application: builds the parts, spawns their loops, and stops them in order.
//!
//! Every task is owned here. One that ends before the stop, or panics, ends the daemon with its reason: a relay that
//! lost a loop would look alive and do half of its work.

pub(crate) mod build;
mod looks;

use crate::admin::http;
use crate::broker::Broker;
use crate::config::{Config, Wake as WakeMode};
use crate::relay::{Lane, Relay};
use crate::stop::Stop;
use crate::systemd;
use anyhow::Context;
use build::Parts;
use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Why the daemon ended.
#[derive(Debug)]
pub enum Ended {
    /// Asked to, and everything in flight was settled.
    Stopped,
    /// The configuration does not fit the database or the broker; a restart does not help.
    Misconfigured(String),
    /// Anything else.
    Failed(String),
}

/// What ends a task before the stop.
type TaskEnd = Result<(), Ended>;

/// Runs the daemon until it is asked to stop.
///
/// # Errors
/// Something that it needs from the system is not to be had.
pub async fn run(config: Config) -> anyhow::Result<Ended> {
    let mut signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let listener = tokio::net::TcpListener::bind(config.admin.listen).await;
    let listener = listener.with_context(|| format!("admin.listen = {}: cannot listen there; is another duebox running? another address: [admin] listen, or DUEBOX_ADMIN__LISTEN", config.admin.listen))?;
    let grace = config.relay.shutdown_grace;
    let parts = match Parts::build(config) {
        Ok(parts) => parts,
        Err(error) => return Ok(Ended::Misconfigured(format!("{error:#}"))),
    };
    let (stop, broker, health) = (parts.stop.clone(), parts.broker.clone(), Arc::clone(&parts.health));
    let (metrics, fresh) = (Arc::clone(&parts.metrics), Arc::clone(&parts.fresh));
    let shown = http::Shown { health: Arc::clone(&health), metrics, fresh };
    let mut tasks = Tasks::spawn(parts);
    tasks.spawn_other("the HTTP side", stop.clone(), serve(listener, shown, stop.clone()));
    systemd::ready();
    tracing::info!("duebox {} is running", env!("CARGO_PKG_VERSION"));
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Some(SIGTERM | SIGINT) | None => break,
                Some(SIGHUP) => tracing::warn!("SIGHUP: this version does not reload; restart to apply a changed file"),
                Some(_) => tracing::info!(state = ?health.parts(), stalled = ?health.stalled(), "state on SIGUSR1"),
            },
            ended = tasks.first_end() => return Ok(ended),
        }
    }
    tracing::info!("stopping: no new claims, {} workers finish what is in flight", tasks.workers.len());
    systemd::stopping();
    stop.raise();
    let again = async { while !matches!(signals.next().await, Some(SIGTERM | SIGINT) | None) {} };
    tokio::select! {
        () = tasks.drain(&broker) => Ok(Ended::Stopped),
        () = tokio::time::sleep(grace) => Ok(Ended::Failed(format!(
            "still busy after relay.shutdown_grace = {grace:?}; what was not confirmed is not marked sent"
        ))),
        () = again => Ok(Ended::Failed("stopped at once by a second signal; what was not confirmed is not marked sent".into())),
    }
}

/// Every task of the daemon.
struct Tasks {
    /// Those that may have messages in flight.
    workers: JoinSet<TaskEnd>,
    /// Those that they need.
    others: JoinSet<TaskEnd>,
}

impl Tasks {
    fn spawn(parts: Parts) -> Self {
        let mut tasks = Self { workers: JoinSet::new(), others: JoinSet::new() };
        let relay = Arc::new(parts.relay());
        let parts = Arc::new(parts);
        // Nothing is claimed before the schema has been found good.
        let (open, gate) = watch::channel(false);
        let checked = Arc::clone(&parts);
        let stop = parts.stop.clone();
        tasks.spawn_other("the schema check", stop.clone(), async move { looks::check_schema(&checked, &open).await });
        for index in 0..=parts.config.relay.workers {
            let (name, lane) = match index {
                0 => ("isolated worker".to_owned(), Lane::Isolated),
                _ => (format!("worker {index}"), Lane::Shared),
            };
            let work = work(Arc::clone(&relay), name.clone(), lane, gate.clone(), stop.clone());
            tasks.workers.spawn(owned(name, stop.clone(), work));
        }
        tasks.spawn_links(&parts);
        tasks.spawn_watchers(&parts);
        tasks.spawn_sweeps(&parts, &gate);
        tasks
    }

    fn spawn_other(&mut self, name: &str, stop: Stop, work: impl Future<Output = TaskEnd> + Send + 'static) {
        self.others.spawn(owned(name.to_owned(), stop, work));
    }

    fn spawn_links(&mut self, parts: &Arc<Parts>) {
        let tiers: Vec<_> = parts.config.tiers.values().cloned().collect();
        let (shared, isolated) = (Arc::clone(&parts.broker.shared), Arc::clone(&parts.broker.isolated));
        let ended = |ended: Result<(), String>| ended.map_err(Ended::Misconfigured);
        let work = async move { ended(Box::pin(shared.run(&tiers)).await) };
        self.spawn_other("the connection to RabbitMQ", parts.stop.clone(), work);
        let work = async move { ended(Box::pin(isolated.run(&[])).await) };
        self.spawn_other("the isolated connection to RabbitMQ", parts.stop.clone(), work);
    }

    fn spawn_watchers(&mut self, parts: &Arc<Parts>) {
        let stop = || parts.stop.clone();
        if parts.config.outbox.wake == WakeMode::Notify {
            let parts = Arc::clone(parts);
            let work = async move {
                parts.doorbell.run(&parts.stop).await;
                Ok(())
            };
            self.spawn_other("the listener", stop(), work);
        }
        let shared = Arc::clone(parts);
        self.spawn_other("the backlog count", stop(), async move { looks::count_backlog(&shared).await });
        let shared = Arc::clone(parts);
        self.spawn_other("the record of queues", stop(), async move { looks::record_queues(&shared).await });
        let shared = Arc::clone(parts);
        let work = async move {
            systemd::run(&shared.health, &shared.stop).await;
            Ok(())
        };
        self.spawn_other("the talk to systemd", stop(), work);
    }

    fn spawn_sweeps(&mut self, parts: &Arc<Parts>, gate: &watch::Receiver<bool>) {
        let rules = parts.config.rules.keys().filter(|_| parts.config.sweep.enabled);
        for rule in rules.filter_map(|name| parts.sweep(name)) {
            let (mut gate, stop) = (gate.clone(), parts.stop.clone());
            let name = format!("the sweep of rule {}", rule.name);
            let work = async move {
                if opened(&mut gate, &stop).await {
                    rule.run().await;
                }
                Ok(())
            };
            self.spawn_other(&name, parts.stop.clone(), work);
        }
    }

    /// Waits for the first task to end, which none should before the stop.
    async fn first_end(&mut self) -> Ended {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.workers.join_next() => ended,
                Some(ended) = self.others.join_next() => ended,
                else => return Ended::Failed("every task has ended".to_owned()),
            };
            match ended {
                // A worker that saw a stop nobody here raised cannot be; go on with the others.
                Ok(Ok(())) => {}
                Ok(Err(reason)) => return reason,
                Err(error) => return Ended::Failed(format!("a task died: {error}")),
            }
        }
    }

    /// Workers first, while their connections still stand; then the rest.
    async fn drain(&mut self, broker: &Broker) {
        while self.workers.join_next().await.is_some() {}
        broker.shared.release();
        broker.isolated.release();
        while self.others.join_next().await.is_some() {}
    }
}

/// One worker's life: it may start when the schema is good, and may end only at the stop.
async fn work(
    relay: Arc<Relay<crate::outbox::Outbox, Broker>>,
    name: String,
    lane: Lane,
    mut gate: watch::Receiver<bool>,
    stop: Stop,
) -> TaskEnd {
    if opened(&mut gate, &stop).await {
        relay.work(&name, lane).await;
    }
    Ok(())
}

/// Waits until the schema has been found good; false at the stop.
async fn opened(gate: &mut watch::Receiver<bool>, stop: &Stop) -> bool {
    let opened = stop.or(gate.wait_for(|open| *open)).await.map(|opened| opened.is_ok());
    if opened == Some(false) {
        // It is not good: the task that found out ends the daemon, with its reason and not with ours.
        stop.wait().await;
    }
    opened == Some(true)
}

/// Serves HTTP until the stop.
async fn serve(listener: tokio::net::TcpListener, shown: http::Shown, stop: Stop) -> TaskEnd {
    match stop.or(http::run(listener, shown)).await {
        Some(Err(error)) => Err(Ended::Failed(format!("the HTTP side failed: {error}"))),
        Some(Ok(())) | None => Ok(()),
    }
}

/// A task's life; its end before the stop is a failure of the daemon.
async fn owned(name: String, stop: Stop, work: impl Future<Output = TaskEnd>) -> TaskEnd {
    match work.await {
        Ok(()) if !stop.raised() => Err(Ended::Failed(format!("{name} ended by itself"))),
        ended => ended,
    }
}
