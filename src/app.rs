//! The application: builds the parts, spawns their loops, and stops them in order.
//!
//! Every task is owned here. One that ends before the stop, or panics, ends the daemon with its reason: a relay that
//! lost a loop would look alive and do half of its work.

pub(crate) mod build;

use crate::admin::health::Part;
use crate::admin::http;
use crate::broker::Broker;
use crate::config::{Config, Wake as WakeMode};
use crate::outbox::error::Error;
use crate::outbox::{count, inspect, listen};
use crate::relay::{Lane, Relay};
use crate::stop::Stop;
use crate::systemd;
use anyhow::Context;
use build::Parts;
use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often the backlog is counted, at the least; a slow count is made less often.
const COUNT_EVERY: Duration = Duration::from_secs(5);

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
    let listener = listener.with_context(|| format!("admin.listen = {}: cannot listen there", config.admin.listen))?;
    let grace = config.relay.shutdown_grace;
    let parts = match Parts::build(config) {
        Ok(parts) => parts,
        Err(error) => return Ok(Ended::Misconfigured(format!("{error:#}"))),
    };
    let (stop, broker, health) = (parts.stop.clone(), parts.broker.clone(), Arc::clone(&parts.health));
    let shown = http::Shown { health: Arc::clone(&health), metrics: Arc::clone(&parts.metrics) };
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
        tasks.spawn_other("the schema check", stop.clone(), async move { check_schema(&checked, &open).await });
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
            let work = async move { Ok(listen::run(&parts.listen, &parts.wake, &parts.health, &parts.stop).await) };
            self.spawn_other("the listener", stop(), work);
        }
        let shared = Arc::clone(parts);
        self.spawn_other("the backlog count", stop(), async move { Ok(count_backlog(&shared).await) });
        let shared = Arc::clone(parts);
        self.spawn_other("the record of queues", stop(), async move { Ok(record_queues(&shared).await) });
        let shared = Arc::clone(parts);
        self.spawn_other(
            "the talk to systemd",
            stop(),
            async move { Ok(systemd::run(&shared.health, &shared.stop).await) },
        );
    }

    fn spawn_sweeps(&mut self, parts: &Arc<Parts>, gate: &watch::Receiver<bool>) {
        let rules = parts.config.rules.keys().filter(|_| parts.config.sweep.enabled);
        for rule in rules.filter_map(|name| parts.sweep(name)) {
            let (mut gate, stop) = (gate.clone(), parts.stop.clone());
            let name = format!("the sweep of rule {}", rule.name);
            let work = async move {
                if stop.or(gate.wait_for(|open| *open)).await.is_some_and(|opened| opened.is_ok()) {
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
    let opened = stop.or(gate.wait_for(|open| *open)).await;
    if matches!(opened, Some(Ok(_))) {
        drop(opened);
        relay.work(&name, lane).await;
    }
    Ok(())
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

/// Waits until the database can be asked, and opens the gate if its schema is good.
async fn check_schema(parts: &Parts, open: &watch::Sender<bool>) -> TaskEnd {
    loop {
        match parts.stop.or(inspect::inspect(&parts.pool, &parts.settings)).await {
            None => return Ok(()),
            Some(Ok(found)) if found.problems.is_empty() => {
                tracing::info!("{}", found.schema);
                open.send_replace(true);
                // The gate stays open as long as its sender lives.
                parts.stop.wait().await;
                return Ok(());
            }
            Some(Ok(found)) => return Err(Ended::Misconfigured(found.problems.join("\n"))),
            Some(Err(error)) => {
                parts.metrics.set_up("postgres", false);
                parts.health.problem(&Part::Postgres, &error.to_string());
            }
        }
        if parts.stop.or(tokio::time::sleep(Duration::from_secs(1))).await.is_none() {
            return Ok(());
        }
    }
}

/// Counts what waits; unknown is absent.
async fn count_backlog(parts: &Parts) {
    let mut away = false;
    loop {
        let started = std::time::Instant::now();
        let Some(counted) = parts.stop.or(count::backlog(&parts.pool, &parts.settings)).await else { return };
        parts.metrics.set_backlog(counted.as_deref().ok());
        away = note_database(parts, counted.err().as_ref(), away);
        // At most a twentieth of the time: a count walks every pending row.
        let wait = COUNT_EVERY.max(started.elapsed() * 20);
        if parts.stop.or(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// The workers look only while the broker is there, and may sleep for long: the count notices what they do not.
/// It takes back only its own word, for they may have another trouble with the database. Returns whether it is away.
fn note_database(parts: &Parts, failed: Option<&Error>, was_away: bool) -> bool {
    match failed {
        Some(error) if error.is_away() => {
            parts.metrics.set_up("postgres", false);
            parts.health.problem(&Part::Postgres, &error.to_string());
            true
        }
        Some(_) => was_away,
        None => {
            if was_away {
                parts.metrics.set_up("postgres", true);
                parts.health.well(&Part::Postgres);
            }
            false
        }
    }
}

/// Remembers which delay queues were declared.
async fn record_queues(parts: &Parts) {
    let mut declared = parts.broker.shared.declared.subscribe();
    loop {
        let names: Vec<String> = declared.borrow_and_update().iter().cloned().collect();
        let recorded = match names.is_empty() {
            true => Ok(()),
            false => count::record_queues(&parts.pool, &parts.settings, &names).await,
        };
        let next = async {
            match recorded {
                Ok(()) => drop(declared.changed().await),
                Err(_away) => tokio::time::sleep(COUNT_EVERY).await,
            }
        };
        if parts.stop.or(next).await.is_none() {
            return;
        }
    }
}
