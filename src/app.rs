//! The application: builds the parts, spawns their loops, and stops them in order.
//!
//! Every task is owned here. One that ends before the stop, or panics, ends the daemon with its reason: a relay that
//! lost a loop would look alive and do half of its work.

pub(crate) mod build;
mod looks;
mod tasks;

use crate::admin::http;
use crate::broker::Broker;
use crate::config::{Config, Wake as WakeMode};
use crate::relay::{Lane, Relay};
use crate::rule::port::Source;
use crate::stop::Stop;
use crate::systemd;
use anyhow::Context;
use build::Parts;
use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::sync::Arc;
use tasks::{TaskEnd, Tasks};
use tokio::sync::watch;

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
    let (stop, links, health) = (parts.stop.clone(), parts.links(), Arc::clone(&parts.health));
    let (metrics, fresh) = (Arc::clone(&parts.metrics), Arc::clone(&parts.fresh));
    let pauses = Arc::clone(&parts.pauses);
    let shown = http::Shown { health: Arc::clone(&health), metrics, fresh, pauses };
    let mut tasks = spawn(parts);
    // It answers until the last worker is through: whoever waits for the end wants to see what it waits for.
    let served = Stop::default();
    tasks.spawn_other("the HTTP side", serve(listener, shown, served.clone()));
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
    tracing::info!("stopping: no new claims; {} in flight", health.flight.now());
    systemd::stopping();
    health.set_stopping();
    stop.raise();
    let release = || {
        links.iter().for_each(|link| link.release());
        served.raise();
    };
    let again = async { while !matches!(signals.next().await, Some(SIGTERM | SIGINT) | None) {} };
    tokio::select! {
        ended = tasks.drain(release) => Ok(ended),
        () = tokio::time::sleep(grace) => Ok(Ended::Failed(format!(
            "still busy after relay.shutdown_grace = {grace:?}; what was not confirmed is not marked sent"
        ))),
        () = again => Ok(Ended::Failed("stopped at once by a second signal; what was not confirmed is not marked sent".into())),
    }
}

/// Spawns every loop of the daemon.
fn spawn(parts: Parts) -> Tasks {
    let mut tasks = Tasks::new(parts.stop.clone());
    let relay = Arc::new(parts.relay());
    let parts = Arc::new(parts);
    // Nothing is claimed before the schema has been found good.
    let (open, gate) = watch::channel(false);
    let checked = Arc::clone(&parts);
    tasks.spawn_other("the schema check", async move { looks::check_schema(&checked, &open).await });
    for index in 0..=parts.config.relay.workers {
        let (name, lane) = match index {
            0 => ("isolated worker".to_owned(), Lane::Isolated),
            _ => (format!("worker {index}"), Lane::Shared),
        };
        let work = work(Arc::clone(&relay), name.clone(), lane, gate.clone(), parts.stop.clone());
        tasks.spawn_worker(name, work);
    }
    spawn_links(&mut tasks, &parts);
    spawn_watchers(&mut tasks, &parts);
    spawn_sweeps(&mut tasks, &parts, &gate);
    if parts.config.closer.enabled {
        spawn_closer(&mut tasks, &parts, &gate);
    }
    tasks
}

fn spawn_links(tasks: &mut Tasks, parts: &Arc<Parts>) {
    let tiers: Vec<_> = parts.config.tiers.values().cloned().collect();
    let shared = Arc::clone(&parts.broker.shared);
    let ended = |ended: Result<(), String>| ended.map_err(Ended::Misconfigured);
    tasks.spawn_other("the connection to RabbitMQ", async move { ended(Box::pin(shared.run(&tiers)).await) });
    let isolated = ("the isolated connection to RabbitMQ", Some(&parts.broker.isolated));
    for (name, link) in [isolated, ("the closer's connection to RabbitMQ", parts.closer_link.as_ref())] {
        let Some(link) = link.map(Arc::clone) else { continue };
        tasks.spawn_other(name, async move { ended(Box::pin(link.run(&[])).await) });
    }
}

fn spawn_watchers(tasks: &mut Tasks, parts: &Arc<Parts>) {
    if parts.config.outbox.wake == WakeMode::Notify {
        let parts = Arc::clone(parts);
        tasks.spawn_other("the listener", async move {
            parts.doorbell.run(&parts.stop).await;
            Ok(())
        });
    }
    let shared = Arc::clone(parts);
    tasks.spawn_other("the backlog count", async move {
        let ended = looks::count_backlog(&shared).await;
        // Pages are served until the end, and nobody counts for them any more: what is unknown is absent.
        shared.metrics.set_backlog(None);
        ended
    });
    let shared = Arc::clone(parts);
    tasks.spawn_other("the record of queues", async move { looks::record_queues(&shared).await });
    let shared = Arc::clone(parts);
    tasks.spawn_other("the talk to systemd", async move {
        systemd::run(&shared.health, &shared.stop).await;
        Ok(())
    });
}

fn spawn_sweeps(tasks: &mut Tasks, parts: &Arc<Parts>, gate: &watch::Receiver<bool>) {
    let rules = parts.config.rules.keys().filter(|_| parts.config.sweep.enabled);
    for rule in rules.filter_map(|name| parts.sweep(name)) {
        let (mut gate, stop) = (gate.clone(), parts.stop.clone());
        tasks.spawn_other(&format!("the sweep of rule {}", rule.name), async move {
            if opened(&mut gate, &stop).await {
                rule.run().await;
            }
            Ok(())
        });
    }
}

/// Among the workers: their acks need the connection to the last.
fn spawn_closer(tasks: &mut Tasks, parts: &Arc<Parts>, gate: &watch::Receiver<bool>) {
    let (closer, consumers) = parts.closer();
    let closer = Arc::new(closer);
    for consumer in consumers {
        let (closer, mut gate, parts) = (Arc::clone(&closer), gate.clone(), Arc::clone(parts));
        tasks.spawn_worker(format!("the intake of queue '{}'", consumer.queue()), async move {
            // Its queue may have yet to be declared, over another connection.
            let declared = parts.stop.or(parts.broker.shared.reached());
            if opened(&mut gate, &parts.stop).await && declared.await.is_some() {
                Box::pin(closer.intake(consumer)).await;
            }
            Ok(())
        });
    }
    for index in 1..=parts.config.closer.concurrency {
        let (name, closer) = (format!("closer {index}"), Arc::clone(&closer));
        tasks.spawn_worker(name.clone(), async move {
            closer.work(&name).await;
            Ok(())
        });
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
