//! A connection that is up: its events, its looks and its checks, side by side, until it ends or must.

use super::{Link, Up};
use crate::admin::health::Part;
use crate::broker::error::{Error, describe};
use crate::broker::topology::{self, Report};
use crate::tier::Tier;
use futures_util::StreamExt;
use futures_util::future::{Fuse, FusedFuture, FutureExt};
use lapin::Event;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How often the state of the connection is looked at beside its events.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row without any user, after which a connection made on demand is closed.
const IDLE: u32 = 30;

impl Link {
    /// Watches a connection until it ends, or must; returns why.
    pub(super) async fn watch(
        &self,
        up: &Arc<Up>,
        tiers: &[Tier],
        events: &mut (impl StreamExt<Item = Event> + Unpin),
    ) -> String {
        let mut every = tokio::time::interval(self.settings.topology_check);
        every.reset();
        let mut look = tokio::time::interval(LOOK);
        let (mut idle, mut due) = (0, false);
        // Beside the rest: a check takes many round trips, and the broker may block or vanish in the middle of it.
        let mut check = pin!(Fuse::terminated());
        loop {
            self.health.beat(self.name, self.settings.stall());
            tokio::select! {
                () = self.stop.wait() => return self.drained(up, events).await,
                () = up.suspect.notified() => return "no answer to anything published over it".to_owned(),
                event = events.next() => if let Some(reason) = self.event(up, event) {
                    return reason;
                },
                report = &mut check => if let Some(reason) = self.checked(tiers, report) {
                    return reason;
                },
                _ = look.tick() => {
                    if !up.connection.status().connected() {
                        return "connection lost".to_owned();
                    }
                    // Held by us and by the state only: no publisher has been using it for a while.
                    idle = if self.on_demand && Arc::strong_count(up) <= 2 { idle + 1 } else { 0 };
                    if idle > IDLE {
                        return "no longer needed".to_owned();
                    }
                }
                _ = every.tick() => due = !self.on_demand,
                () = self.check.notified() => due = !self.on_demand,
            }
            if *up.blocked.borrow() {
                // Nothing is written now, so a check would only run into its deadline; it is made afterwards.
                due |= !check.is_terminated();
                check.set(Fuse::terminated());
            } else if due && check.is_terminated() {
                due = false;
                every.reset();
                check.set(topology::ensure(&up.connection, &self.settings, tiers, self.known()).fuse());
            }
        }
    }

    /// Takes over the end of a check; `Some` when it shows that the connection is of no use.
    fn checked(&self, tiers: &[Tier], report: Result<Report, Error>) -> Option<String> {
        match report {
            Ok(report) => {
                self.note(tiers, &report);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// At the stop the connection stays up until the last publisher has let go of it: see [`Link::release`].
    async fn drained(&self, up: &Up, events: &mut (impl StreamExt<Item = Event> + Unpin)) -> String {
        let mut state = self.state.subscribe();
        loop {
            tokio::select! {
                _gone = state.wait_for(Option::is_none) => return "stopping".to_owned(),
                // A block must still reach those who wait for their last confirms.
                event = events.next() => if let Some(reason) = self.event(up, event) {
                    return reason;
                },
            }
        }
    }

    /// What an event means; `Some` when the connection has ended.
    fn event(&self, up: &Up, event: Option<Event>) -> Option<String> {
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                up.blocked.send_replace(true);
                if self.on_demand {
                    return None;
                }
                self.away();
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
                self.check.notify_one();
                None
            }
            // A channel's error arrives here too; that one is its publisher's.
            Some(Event::Error(error)) if !up.connection.status().connected() => Some(describe(&error)),
            Some(_) => None,
            None => Some("connection lost".to_owned()),
        }
    }
}
