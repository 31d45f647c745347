//! The topology behind the tiers: what is missing is declared, what differs is named, and nothing is ever deleted.
//!
//! Every step has a channel of its own, because a refusal closes the channel it came on.

use super::error::{Error, within};
use super::headers::short;
use super::link::{Endpoint, Settings};
use crate::admin::health::{Health, Part};
use crate::admin::metrics::{ByTier, Metrics};
use crate::tier::{Argument, Arguments, Kind, Target, Tier};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ExchangeKind, Queue};
use std::collections::{BTreeMap, BTreeSet};

const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;

/// Something on the broker that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) tier: String,
    pub(super) text: String,
    /// It exists and differs: waiting does not heal it, and publishing through it would delay wrongly.
    pub(super) mismatch: bool,
}

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    /// Delay queues of ours that are there now.
    pub(super) declared: BTreeSet<String>,
    /// Consumers by tier: on the target queue, and on the delay queue.
    consumers: BTreeMap<String, (Option<u32>, Option<u32>)>,
}

impl Report {
    /// What does not heal by waiting, for the last words before exit code 78.
    pub(super) fn mismatches(&self) -> Option<String> {
        let texts: Vec<&str> = self.problems.iter().filter(|p| p.mismatch).map(|p| p.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Makes it known: one part of the health for each tier.
    pub(super) fn publish(&self, tiers: &[Tier], health: &Health, metrics: &Metrics) {
        for tier in tiers {
            let texts: Vec<&str> =
                self.problems.iter().filter(|p| p.tier == tier.name).map(|p| p.text.as_str()).collect();
            let part = Part::Tier(tier.name.clone());
            if texts.is_empty() {
                health.well(&part);
            } else {
                health.problem(&part, &texts.join("; "));
            }
            let (target, delay) = self.consumers.get(&tier.name).copied().unwrap_or_default();
            let label = ByTier { tier: tier.name.clone() };
            match target {
                Some(count) => drop(metrics.target_consumers.get_or_create(&label).set(i64::from(count))),
                None => drop(metrics.target_consumers.remove(&label)),
            }
            let part = Part::Consumers(tier.name.clone());
            match (target, delay) {
                (_, Some(count)) if count > 0 => {
                    let text =
                        format!("a consumer is on the delay queue ({count}): it gets messages before they are due");
                    health.problem(&part, &text);
                }
                (Some(0), _) => health.problem(&part, "nobody consumes the target queue"),
                _ => health.forget(&part),
            }
        }
    }
}

/// Declares what is missing for `tiers` and checks the rest.
///
/// # Errors
/// The connection failed; what is wrong with the topology is in the report.
pub(super) async fn ensure(connection: &Connection, settings: &Settings, tiers: &[Tier]) -> Result<Report, Error> {
    let mut check = Check { connection, settings, report: Report::default() };
    for tier in tiers {
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

struct Check<'a> {
    connection: &'a Connection,
    settings: &'a Settings,
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
                // A fanout exchange ignores the key; any other kind needs to be told which one.
                let fanout = exchange_type.as_deref() == Some("fanout");
                if let Some(key) = routing_key.as_deref().or(fanout.then_some("")) {
                    self.bind(tier, queue, exchange, key).await?;
                }
                Ok(consumers)
            }
        }
    }

    /// An existing target queue is used as it is; a missing one becomes a quorum queue that keeps every message.
    async fn target_queue(&mut self, tier: &Tier, queue: &str) -> Result<Option<u32>, Error> {
        let refusal = match self.passive(queue).await? {
            Ok(found) => return Ok(Some(found.consumer_count())),
            Err(refusal) => refusal,
        };
        if refusal.code != NOT_FOUND {
            self.problem(tier, false, format!("target queue '{queue}': {} {}", refusal.code, refusal.text));
            return Ok(None);
        }
        let mut arguments = Arguments::from([("x-queue-type".to_owned(), Argument::Text("quorum".to_owned()))]);
        let plain = arguments.clone();
        // From 4.0 on a quorum queue drops a message after 20 redeliveries unless told otherwise; brokers before that
        // know no such default and refuse -1.
        arguments.insert("x-delivery-limit".to_owned(), Argument::Int(-1));
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

    /// An exchange that must be there, or is declared when its type is known.
    async fn exchange(&mut self, tier: &Tier, exchange: &str, kind: Option<&str>) -> Result<(), Error> {
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let what = format!("look for exchange '{exchange}'");
        let declare = async |channel: &Channel, kind: ExchangeKind, options| {
            channel.exchange_declare(exchange.into(), kind, options, FieldTable::default()).await
        };
        let refusal =
            match self.step(&what, async |channel| declare(channel, ExchangeKind::Direct, passive).await).await? {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
        let text = match kind {
            Some(kind) if refusal.code == NOT_FOUND => {
                let what = format!("declare exchange '{exchange}'");
                let kind = ExchangeKind::Custom(kind.to_owned());
                match self.step(&what, async |channel| declare(channel, kind, durable).await).await? {
                    Ok(()) => return Ok(()),
                    Err(Refusal { code, text }) => format!("exchange '{exchange}' cannot be declared: {code} {text}"),
                }
            }
            _ if refusal.code == NOT_FOUND => format!(
                "exchange '{exchange}' is missing; declare it, or give exchange_type so that duebox declares it"
            ),
            _ => format!("exchange '{exchange}': {} {}", refusal.code, refusal.text),
        };
        self.problem(tier, false, text);
        Ok(())
    }

    async fn bind(&mut self, tier: &Tier, queue: &str, exchange: &str, key: &str) -> Result<(), Error> {
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

    /// The delay queue and the exchange in front of it. Returns its consumers.
    async fn delay(&mut self, tier: &Tier) -> Result<Option<u32>, Error> {
        let Kind::Queue { queue, .. } = &tier.kind else { return Ok(None) };
        let consumers = match self.declare(&queue.name, &queue.arguments).await? {
            Ok(found) => {
                self.report.declared.insert(queue.name.clone());
                Some(found.consumer_count())
            }
            Err(Refusal { code: PRECONDITION_FAILED, text }) => {
                let wanted: Vec<String> =
                    queue.arguments.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                let cure = "duebox never deletes a queue: give the tier another queue name, drain and delete the old \
                            queue, or set these arguments to what the queue has";
                let name = &queue.name;
                let wanted = wanted.join(", ");
                let text =
                    format!("delay queue '{name}' exists with other arguments ({text}); wanted: {wanted}; {cure}");
                self.problem(tier, true, text);
                None
            }
            Err(Refusal { code, text }) => {
                self.problem(tier, false, format!("delay queue '{}' cannot be declared: {code} {text}", queue.name));
                None
            }
        };
        if !queue.hop.exchange.is_empty() {
            self.exchange(tier, &queue.hop.exchange, None).await?;
            self.bind(tier, &queue.name, &queue.hop.exchange, &queue.hop.routing_key).await?;
        }
        Ok(consumers)
    }
}

fn table(arguments: &Arguments) -> FieldTable {
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

/// What `check --connect` finds on the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Wrong, and it stays wrong until somebody acts.
    pub problems: Vec<String>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// Looks at what `tiers` need on the broker at `endpoint`, and changes nothing.
///
/// # Errors
/// The broker cannot be asked.
pub async fn inspect(endpoint: &Endpoint, settings: &Settings, tiers: &[Tier]) -> Result<Inspection, Error> {
    let (connection, _cut) =
        super::socket::connect(endpoint, "duebox check", settings.heartbeat, settings.connect_timeout).await?;
    let mut check = Check { connection: &connection, settings, report: Report::default() };
    let mut found = Inspection::default();
    for tier in tiers {
        let target = match &tier.target {
            Target::Queue(queue) => Some(queue),
            Target::Exchange { queue, .. } => queue.as_ref(),
        };
        if let Some(queue) = target {
            match check.passive(queue).await? {
                Ok(there) if there.consumer_count() == 0 => {
                    found.notes.push(format!("tier {}: nobody consumes target queue '{queue}'", tier.name));
                }
                Ok(_) => {}
                Err(refusal) => found.missing(tier, "target queue", queue, &refusal),
            }
        }
        if let Kind::Queue { queue, .. } = &tier.kind {
            match check.passive(&queue.name).await? {
                // It is there, so declaring it creates nothing and compares its arguments.
                Ok(_) => drop(check.delay(tier).await?),
                Err(refusal) => found.missing(tier, "delay queue", &queue.name, &refusal),
            }
        }
    }
    found
        .problems
        .extend(check.report.problems.iter().map(|problem| format!("tier {}: {}", problem.tier, problem.text)));
    Ok(found)
}

impl Inspection {
    fn missing(&mut self, tier: &Tier, what: &str, queue: &str, refusal: &Refusal) {
        let Refusal { code, text } = refusal;
        if *code == NOT_FOUND {
            self.notes.push(format!("tier {}: {what} '{queue}' is not there yet; `run` declares it", tier.name));
        } else {
            self.problems.push(format!("tier {}: {what} '{queue}': {code} {text}", tier.name));
        }
    }
}
