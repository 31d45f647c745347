//! The loop between the two sides: claim, publish, settle.
//!
//! ```text
//!            ┌──────── desk: one worker at a time looks and claims ────────┐
//! wake ring ─▶ look ─▶ claim a batch of one tier ─▶ hand the desk on
//!                            └─▶ plan ─▶ publish, all confirms ─▶ judge ─▶ settle | roll back
//! ```
//!
//! This file owns the traits of both sides; neither side knows the other.

mod counts;
pub mod desk;
mod doze;
pub mod fate;
pub mod hops;
pub mod pace;
mod pick;
pub mod sleep;
mod tell;
mod unclaimed;
pub mod worker;

use crate::admin::health::Health;
use crate::admin::metrics::Metrics;
use crate::backoff::Backoff;
use crate::message::{Bounds, Message, Row};
use crate::stop::Stop;
use crate::tier::{Hop, Tier};
use crate::verdict::Outcome;
use crate::wake::Wake;
use hops::Hops;
use pace::Pace;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What is written to a claimed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The broker has it.
    Sent,
    /// Pending again from `until` on (microseconds since the Unix epoch).
    Later {
        /// The new `available_at`.
        until: i64,
        /// Whether this counts as an attempt of the row's.
        counted: bool,
        /// The new `last_error`; `None` keeps the old one.
        reason: Option<String>,
    },
    /// Out of circulation until somebody requeues it.
    Parked {
        /// Whether this counts as an attempt of the row's.
        counted: bool,
        /// The new `last_error`.
        reason: String,
    },
}

/// What a look at the outbox showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Tiers whose first row is available now, or was when somebody else locked it.
    pub due: Vec<String>,
    /// Until the next row becomes available.
    pub next: Option<Duration>,
}

/// A tier with pending rows that this relay does not claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclaimed {
    /// Its name.
    pub tier: String,
    /// Whether a row of it could go now, if another relay knows it.
    pub due: bool,
}

/// An open transaction that may have inserted without ringing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Inserting {
    /// Its name; no other has it while this one is open.
    pub transaction: String,
    /// Its server process, for whoever wants to know what keeps it open.
    pub pid: i32,
}

impl Inserting {
    /// Whether it is a prepared one, which has no process any more and another name than it had before.
    pub(crate) fn is_prepared(&self) -> bool {
        self.pid == 0
    }
}

/// How producers wake a relay that sleeps, and how it tells them that it is awake and they
/// need not ring: by holding the lock K. Nothing here
/// fails: what cannot be done ends the hearing.
pub trait Doorbell: Send + Sync + 'static {
    /// Whether producers' rings are heard. While they are not, the relay polls.
    fn hears(&self) -> bool;

    /// Takes K, unless it is held already: producers stop ringing. Another relay may be the one that has it.
    fn take(&self) -> impl Future<Output = ()> + Send;

    /// Gives K back, and after that says who is inserting. `None`: nobody is heard any more.
    fn release(&self) -> impl Future<Output = Option<Vec<Inserting>>> + Send;

    /// Who is inserting. `None`: nobody is heard any more.
    fn inserting(&self) -> impl Future<Output = Option<Vec<Inserting>>> + Send;

    /// Wakes other relays.
    fn ring(&self) -> impl Future<Output = ()> + Send;

    /// Gives K back, if it is held, and has other relays go the whole way to sleep: this one cannot.
    fn stand_back(&self) -> impl Future<Output = ()> + Send;
}

/// The Postgres side, as the relay needs it.
pub trait Outbox: Send + Sync + 'static {
    /// Claimed rows.
    type Batch: Batch<Error = Self::Error>;
    /// Why the side failed; never about one row.
    type Error: Display + Send;
    /// How producers wake this relay.
    type Doorbell: Doorbell;

    /// The doorbell.
    fn doorbell(&self) -> &Self::Doorbell;

    /// Which of `tiers` have rows, without locking any.
    fn look(&self, tiers: &[String]) -> impl Future<Output = Result<Look, Self::Error>> + Send;

    /// Tiers of pending rows that are not among `claimed`.
    fn unclaimed(&self, claimed: &[String]) -> impl Future<Output = Result<Vec<Unclaimed>, Self::Error>> + Send;

    /// Claims at most `rows` due rows of `tier`; `None` when none is to be had.
    fn claim(&self, tier: &str, rows: usize) -> impl Future<Output = Result<Option<Self::Batch>, Self::Error>> + Send;
}

/// Claimed rows, held until they are settled, rolled back or dropped (which rolls back).
pub trait Batch: Send {
    /// Why the side failed.
    type Error: Display + Send;

    /// The rows, oldest first.
    fn rows(&self) -> &[Row];

    /// The claim's own `now()`, microseconds since the Unix epoch: the clock that due times are compared with.
    fn now(&self) -> i64;

    /// Whether it stopped at its bounds, so that there is probably more.
    fn full(&self) -> bool;

    /// Writes a fate for every row and commits. An error means that nothing, or everything, was written.
    fn settle(self, fates: &[(i64, Fate)]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Gives the rows back as they were.
    fn roll_back(self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// One message on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing<'a> {
    /// The message.
    pub message: &'a Message,
    /// Where to.
    pub hop: Hop,
    /// The row named the routing key itself.
    pub row_key: bool,
    /// Ask for it back if nothing is bound.
    pub mandatory: bool,
    /// What the plugin is asked to wait, for a hop of its kind.
    pub wait: Option<Duration>,
    /// When it must reach its consumer, microseconds since the Unix epoch.
    pub due: i64,
}

/// Which connection a publisher lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The one for everybody.
    Shared,
    /// One of its own, for batches that may be what breaks connections.
    Isolated,
}

/// The RabbitMQ side, as the relay needs it.
pub trait Broker: Send + Sync + 'static {
    /// A channel in confirm mode.
    type Publisher: Publisher;

    /// Waits, for ever if need be, until a channel can be had on an unblocked connection.
    fn publisher(&self, lane: Lane) -> impl Future<Output = Self::Publisher> + Send;

    /// Whether nothing may be published for `tier`, because what is on the broker would delay it wrongly.
    fn closed(&self, tier: &str) -> bool;

    /// Asks for a check of the topology now: a hop is not what it should be.
    fn check_topology(&self);
}

/// A channel in confirm mode, used by one task, with one batch in flight.
pub trait Publisher: Send {
    /// Publishes and waits for the outcome of every message, one each, in order; says so itself when the deadline
    /// passes. Success is reported only for what the broker confirmed and did not return.
    fn publish(&mut self, batch: &[Outgoing<'_>], deadline: Duration) -> impl Future<Output = Vec<Outcome>> + Send;

    /// Whether the channel may be used for another batch now: open, and its connection not blocked.
    fn usable(&self) -> bool;

    /// What a message may be on this connection.
    fn bounds(&self) -> Bounds;
}

/// What the relay is told by the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Batches in work at the same time.
    pub workers: usize,
    /// Most rows of a batch.
    pub batch_rows: usize,
    /// From claim to settle.
    pub batch_deadline: Duration,
    /// Failures of a row that count before it is parked.
    pub max_attempts: u32,
    /// The wait between them.
    pub backoff: Backoff,
    /// Longest sleep between two looks.
    pub poll: Duration,
}

/// The relay: everything its workers share.
#[derive(Debug)]
pub struct Relay<O, B> {
    outbox: O,
    broker: B,
    tiers: BTreeMap<String, Tier>,
    settings: Settings,
    shared: desk::Desk,
    isolated: desk::Desk,
    hops: Hops,
    pace: Pace,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: Stop,
}

/// `first` doubled `times` times, at most `cap`.
fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(31))).min(cap)
}

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// A relay between `outbox` and `broker`; `wake` is what the doorbell rings.
    pub fn new(
        (outbox, broker): (O, B),
        tiers: BTreeMap<String, Tier>,
        settings: Settings,
        wake: Arc<Wake>,
        (health, metrics): (Arc<Health>, Arc<Metrics>),
        stop: Stop,
    ) -> Self {
        Self {
            outbox,
            broker,
            hops: Hops::new(settings.backoff, settings.batch_deadline),
            pace: Pace::new(&settings, tiers.len()),
            shared: desk::Desk::new(wake),
            isolated: desk::Desk::new(Arc::default()),
            tiers,
            settings,
            health,
            metrics,
            stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_their_cap() {
        let ms = Duration::from_millis;
        assert_eq!(doubled(ms(10), 0, ms(1000)), ms(10));
        assert_eq!(doubled(ms(10), 3, ms(1000)), ms(80));
        assert_eq!(doubled(ms(10), 4_000, ms(1000)), ms(1000));
    }
}
