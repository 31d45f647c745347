//! What systemd is told; without systemd, nothing happens.

use crate::admin::health::Health;
use crate::stop::Stop;
use sd_notify::NotifyState;
use std::time::Duration;

/// How often the status line is brought up to date.
const STATUS_EVERY: Duration = Duration::from_secs(2);

/// Tells systemd that the configuration is good and the loops run. Not that both ends are up: a boot must not hang on
/// somebody else's outage.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// Tells systemd that we are on our way out.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Keeps the status line, and feeds the watchdog while every loop makes progress.
pub async fn run(health: &Health, stop: &Stop) {
    let mut last = String::new();
    while stop.or(tokio::time::sleep(STATUS_EVERY)).await.is_some() {
        let status = status(health);
        if status != last {
            send(&[NotifyState::Status(&status)]);
            last = status;
        }
        if health.stalled().is_empty() && sd_notify::watchdog_enabled().is_some() {
            send(&[NotifyState::Watchdog]);
        }
    }
}

/// The state in one line.
fn status(health: &Health) -> String {
    let worst = health.problems().into_iter().min_by_key(|(part, _)| part.rank());
    match worst {
        Some((part, reason)) if part.needed() => format!("{part}: {reason}"),
        Some((part, reason)) if health.ready() => format!("relaying; {part}: {reason}"),
        None if health.ready() => "relaying".to_owned(),
        _ => "starting".to_owned(),
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd does not listen: {error}");
    }
}
