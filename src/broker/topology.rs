//! The topology behind the tiers: what is missing is declared, what differs is named, and nothing is ever deleted.
//!
//! Every step has a channel of its own, because a refusal closes the channel it came on.

mod delay;
mod inspect;
mod plugin;
mod report;
mod routing;
mod walk;

use super::error::{Error, within};
use super::headers::short;
use super::link::Settings;
use crate::config::Topology;
use crate::tier::{Argument, Arguments, Kind, Target, Tier};
pub use inspect::{Inspection, inspect};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ExchangeKind, Queue};
pub(super) use report::{Problem, Report};
use std::collections::BTreeSet;

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;

/// How often a target queue that we declare hands a message out again: in effect for ever, to every version.
const REDELIVERIES: i64 = 1_000_000_000;

/// Declares what is missing for `tiers`, where that is ours to do, and checks the rest.
///
/// # Errors
/// The connection failed; what is wrong with the topology is in the report.
pub(super) async fn ensure(
    connection: &Connection,
    settings: &Settings,
    tiers: &[Tier],
    known: BTreeSet<String>,
) -> Result<Report, Error> {
    let mut check = Check { connection, settings, known, report: Report::default() };
    if settings.topology == Topology::Off {
        return Ok(check.report);
    }
    // The plugin's last: a broker without it closes the whole connection.
    let plugin = |tier: &&Tier| matches!(tier.kind, Kind::Plugin { .. });
    for tier in tiers.iter().filter(|tier| !plugin(tier)).chain(tiers.iter().filter(plugin)) {
        if let Kind::Plugin { exchange, .. } = &tier.kind
            && !check.plugin(tier, exchange).await?
        {
            break;
        }
        let target = check.target(tier).await?;
        let delay = check.delay(tier).await?;
        check.report.consumers.insert(tier.name.clone(), (target, delay));
    }
    Ok(check.report)
}

/// The broker's refusal of one step.
struct Refusal {
    code: u16,
    text: String,
}

impl Refusal {
    /// What was asked for is not there. A classic queue of a node that is down is: the broker says so with the same code, and
    /// takes no other of that name.
    fn is_missing(&self) -> bool {
        self.code == NOT_FOUND && !self.text.contains("is down or inaccessible")
    }
}

struct Check<'a> {
    connection: &'a Connection,
    settings: &'a Settings,
    /// Queues that have been there before.
    known: BTreeSet<String>,
    report: Report,
}

impl Check<'_> {
    /// Runs one step on a channel of its own; the inner error is a refusal, the outer one a lost connection.
    async fn step<T>(
        &self,
        what: &str,
        work: impl AsyncFnOnce(&Channel) -> lapin::Result<T>,
    ) -> Result<Result<T, Refusal>, Error> {
        let done = within(what, self.settings.connect_timeout, async {
            let channel = self.connection.create_channel().await.map_err(Error::amqp(what))?;
            work(&channel).await.map_err(Error::amqp(what))
        });
        match done.await {
            Ok(value) => Ok(Ok(value)),
            Err(Error::Amqp { source, what }) => match super::error::channel_closed(&source) {
                Some((code, text)) => Ok(Err(Refusal { code, text })),
                None => Err(Error::Amqp { what, source }),
            },
            Err(error) => Err(error),
        }
    }

    fn problem(&mut self, tier: &Tier, mismatch: bool, text: String) {
        self.report.problems.push(Problem { tier: tier.name.clone(), text, mismatch });
    }

    /// Whether the topology is the user's, who alone makes what is missing.
    fn verifies(&self) -> bool {
        self.settings.topology != Topology::Declare
    }

    fn missing(&mut self, tier: &Tier, what: &str) {
        let text = format!("{what} is missing; declare it, or let duebox do it with rabbitmq.topology = \"declare\"");
        self.problem(tier, false, text);
    }

    async fn passive(&self, queue: &str) -> Result<Result<Queue, Refusal>, Error> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.step(&format!("look for queue '{queue}'"), async |channel| {
            channel.queue_declare(queue.into(), options, FieldTable::default()).await
        })
        .await
    }

    async fn declare(&self, queue: &str, arguments: &Arguments) -> Result<Result<Queue, Refusal>, Error> {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let table = table(arguments);
        self.step(&format!("declare queue '{queue}'"), async |channel| {
            channel.queue_declare(queue.into(), options, table).await
        })
        .await
    }

    /// The target's exchange, queue and binding. Returns the consumers of its queue.
    async fn target(&mut self, tier: &Tier) -> Result<Option<u32>, Error> {
        match &tier.target {
            Target::Queue(queue) => self.target_queue(tier, queue).await,
            Target::Exchange { exchange, exchange_type, routing_key, queue } => {
                self.exchange(tier, exchange, exchange_type.as_deref()).await?;
                let Some(queue) = queue else { return Ok(None) };
                let consumers = self.target_queue(tier, queue).await?;
                if let Some(key) = routing_key {
                    self.bind(tier, queue, exchange, key).await?;
                }
                Ok(consumers)
            }
        }
    }

    /// An existing target queue is used as it is; a missing one becomes a quorum queue that keeps every message.
    async fn target_queue(&mut self, tier: &Tier, queue: &str) -> Result<Option<u32>, Error> {
        let refusal = match self.passive(queue).await? {
            Ok(found) => {
                self.report.targets.insert(queue.to_owned());
                return Ok(Some(found.consumer_count()));
            }
            Err(refusal) => refusal,
        };
        if !refusal.is_missing() {
            self.problem(tier, false, format!("target queue '{queue}': {} {}", refusal.code, refusal.text));
            return Ok(None);
        }
        if self.verifies() {
            self.missing(tier, &format!("target queue '{queue}'"));
            return Ok(None);
        }
        if self.known.contains(queue) {
            tracing::error!(
                tier = tier.name,
                "target queue '{queue}' has vanished with all that it held: somebody deleted it, a policy with `expires` \
                 did, or rabbitmq.urls names brokers that are no cluster and this is another; it is declared again. What a delay queue handed on meanwhile is kept by the broker, which tries again \
                 after 3 minutes"
            );
        }
        let mut arguments = Arguments::from([("x-queue-type".to_owned(), Argument::Text("quorum".to_owned()))]);
        let plain = arguments.clone();
        // From 4.0 on a quorum queue drops a message after 20 redeliveries unless told otherwise. Not by -1: to brokers
        // before that it means none at all, and 3.10 drops each message at its first (measured).
        arguments.insert("x-delivery-limit".to_owned(), Argument::Int(REDELIVERIES));
        let mut declared = self.declare(queue, &arguments).await?;
        if matches!(&declared, Err(refusal) if refusal.code == PRECONDITION_FAILED) {
            declared = self.declare(queue, &plain).await?;
        }
        match declared {
            Ok(made) => {
                tracing::info!(tier = tier.name, queue, "declared target queue '{queue}'");
                Ok(Some(made.consumer_count()))
            }
            Err(Refusal { code, text }) => {
                self.problem(
                    tier,
                    false,
                    format!("target queue '{queue}' is missing and cannot be declared: {code} {text}"),
                );
                Ok(None)
            }
        }
    }

    /// Whether an exchange is there.
    async fn exchange_there(&self, exchange: &str) -> Result<Result<(), Refusal>, Error> {
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        self.declare_exchange(&format!("look for exchange '{exchange}'"), exchange, ExchangeKind::Direct, passive).await
    }

    async fn declare_exchange(
        &self,
        what: &str,
        exchange: &str,
        kind: ExchangeKind,
        options: ExchangeDeclareOptions,
    ) -> Result<Result<(), Refusal>, Error> {
        self.step(what, async |channel| {
            channel.exchange_declare(exchange.into(), kind, options, FieldTable::default()).await
        })
        .await
    }

    /// An exchange that must be there, or is declared when its type is known.
    async fn exchange(&mut self, tier: &Tier, exchange: &str, kind: Option<&str>) -> Result<(), Error> {
        let Err(refusal) = self.exchange_there(exchange).await? else { return Ok(()) };
        if refusal.is_missing() && self.verifies() {
            self.missing(tier, &format!("exchange '{exchange}'"));
            return Ok(());
        }
        let text = match kind {
            Some(kind) if refusal.is_missing() => {
                let what = format!("declare exchange '{exchange}'");
                let kind = ExchangeKind::Custom(kind.to_owned());
                let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
                match self.declare_exchange(&what, exchange, kind, durable).await? {
                    Ok(()) => return Ok(()),
                    Err(Refusal { code, text }) => format!("exchange '{exchange}' cannot be declared: {code} {text}"),
                }
            }
            _ if refusal.is_missing() => format!(
                "exchange '{exchange}' is missing; declare it, or give exchange_type so that duebox declares it"
            ),
            _ => format!("exchange '{exchange}': {} {}", refusal.code, refusal.text),
        };
        self.problem(tier, false, text);
        Ok(())
    }

    async fn bind(&mut self, tier: &Tier, queue: &str, exchange: &str, key: &str) -> Result<(), Error> {
        if self.verifies() {
            return Ok(());
        }
        let what = format!("bind queue '{queue}' to exchange '{exchange}' with key '{key}'");
        let options = QueueBindOptions::default();
        let bound = self
            .step(&what, async |channel| {
                channel.queue_bind(queue.into(), exchange.into(), key.into(), options, FieldTable::default()).await
            })
            .await?;
        if let Err(Refusal { code, text }) = bound {
            self.problem(tier, false, format!("{what}: {code} {text}"));
        }
        Ok(())
    }
}

/// Arguments as AMQP has them.
pub(super) fn table(arguments: &Arguments) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Int(value) => AMQPValue::LongLongInt(*value),
            Argument::Text(value) => AMQPValue::LongString(value.as_str().into()),
            Argument::Bool(value) => AMQPValue::Boolean(*value),
        };
        // Names are checked by the configuration; one that is too long for AMQP cannot get here.
        if let Ok(name) = short(name) {
            table.insert(name, value);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RabbitMQ words them.
    #[test]
    fn a_queue_of_a_node_that_is_down_is_not_missing() {
        let refusal = |text: &str| Refusal { code: NOT_FOUND, text: text.to_owned() };
        assert!(refusal("NOT_FOUND - no queue 'due' in vhost '/'").is_missing());
        let down = "NOT_FOUND - home node 'rabbit@b' of durable queue 'due' in vhost '/' is down or inaccessible";
        assert!(!refusal(down).is_missing());
    }
}
