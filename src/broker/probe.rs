//! `check --probe`: one message through a delay queue like those of the tiers, and never through a user's queue.

use super::error::{Error, within};
use super::link::{Endpoint, Settings};
use super::socket;
use super::topology::table;
use crate::tier::{Argument, Arguments, Kind, Tier};
use futures_util::StreamExt as _;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the message is delayed.
const DELAY: Duration = Duration::from_secs(1);

/// How long it is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Queues of a probe that was killed end by themselves, in milliseconds.
const EXPIRES: i64 = 60_000;

/// One kind of delay queue, tried.
#[derive(Debug)]
pub struct Probed {
    /// The tiers that have such a queue.
    pub tiers: Vec<String>,
    /// Its type and strategy.
    pub kind: String,
    /// From publish to delivery, or what went wrong.
    pub took: Result<Duration, String>,
}

/// Sends one message through a queue of each kind that `tiers` delay with, in queues of its own, which it deletes.
///
/// # Errors
/// The broker cannot be asked.
pub async fn probe(endpoint: &Endpoint, settings: &Settings, tiers: &[Tier]) -> Result<Vec<Probed>, Error> {
    match once(endpoint, settings, tiers).await {
        Ok(probed) if probed.iter().all(|probed| probed.took.is_ok()) => Ok(probed),
        // Once more: a busy broker now and then ends a connection that declares queues (541, seen on 3.10), and that says
        // nothing about its delays.
        _ => once(endpoint, settings, tiers).await,
    }
}

async fn once(endpoint: &Endpoint, settings: &Settings, tiers: &[Tier]) -> Result<Vec<Probed>, Error> {
    let (connection, _cut) =
        socket::connect(endpoint, "duebox check --probe", settings.heartbeat, settings.connect_timeout).await?;
    let mut probed = Vec::new();
    for ((kind, strategy), (arguments, tiers)) in kinds(tiers) {
        let name = format!("duebox.probe.{}", uuid::Uuid::new_v4().simple());
        let channel = connection.create_channel().await.map_err(Error::amqp("open a channel"))?;
        let took = within("a probe", PATIENCE, through(&channel, &name, arguments)).await;
        // On a channel of its own: a refusal has closed the other.
        let channel = connection.create_channel().await.map_err(Error::amqp("open a channel"))?;
        for queue in [name.clone(), target(&name)] {
            drop(channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await);
        }
        let kind = if strategy.is_empty() { kind } else { format!("{kind}, {strategy}") };
        probed.push(Probed { tiers, kind, took: took.map_err(|error| error.to_string()) });
    }
    Ok(probed)
}

/// The arguments that tell two delay queues apart here, by type and strategy, with the tiers that have them.
fn kinds(tiers: &[Tier]) -> BTreeMap<(String, String), (Arguments, Vec<String>)> {
    let mut kinds: BTreeMap<_, (Arguments, Vec<String>)> = BTreeMap::new();
    for tier in tiers {
        let Kind::Queue { queue, .. } = &tier.kind else { continue };
        let text = |key: &str| queue.arguments.get(key).map(ToString::to_string).unwrap_or_default();
        let kind = Some(text("x-queue-type")).filter(|kind| !kind.is_empty()).unwrap_or_else(|| "classic".to_owned());
        let same = ["x-queue-type", "x-dead-letter-strategy", "x-overflow"];
        let arguments = queue.arguments.iter().filter(|(key, _)| same.contains(&key.as_str()));
        let arguments = arguments.map(|(key, value)| (key.clone(), value.clone())).collect();
        let kind = (kind, text("x-dead-letter-strategy"));
        kinds.entry(kind).or_insert((arguments, Vec::new())).1.push(tier.name.clone());
    }
    kinds
}

fn target(name: &str) -> String {
    format!("{name}.due")
}

/// Declares the pair, sends the message and waits for it.
async fn through(channel: &Channel, name: &str, mut arguments: Arguments) -> Result<Duration, Error> {
    let whole = |duration: Duration| Argument::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
    let due = target(name);
    arguments.extend([
        ("x-message-ttl".to_owned(), whole(DELAY)),
        ("x-expires".to_owned(), Argument::Int(EXPIRES)),
        ("x-dead-letter-exchange".to_owned(), Argument::Text(String::new())),
        ("x-dead-letter-routing-key".to_owned(), Argument::Text(due.clone())),
    ]);
    let of_target = Arguments::from([("x-expires".to_owned(), Argument::Int(EXPIRES))]);
    for (queue, arguments) in [(due.as_str(), &of_target), (name, &arguments)] {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared = channel.queue_declare(queue.into(), durable, table(arguments)).await;
        declared.map_err(Error::amqp(format!("declare queue '{queue}'")))?;
    }
    let consume = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let mut deliveries = channel
        .basic_consume(due.as_str().into(), "".into(), consume, FieldTable::default())
        .await
        .map_err(Error::amqp("consume"))?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await.map_err(Error::amqp("switch confirms on"))?;
    let published = Instant::now();
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_delivery_mode(2);
    let confirm = channel.basic_publish("".into(), name.into(), options, b"probe", properties).await;
    let confirm = confirm.map_err(Error::amqp("publish"))?.await.map_err(Error::amqp("publish"))?;
    if !matches!(confirm, Confirmation::Ack(None)) {
        let source = std::io::Error::other("the message came back, or was refused");
        return Err(Error::Network { what: "publish".to_owned(), source });
    }
    match deliveries.next().await {
        Some(Ok(_)) => Ok(published.elapsed()),
        Some(Err(source)) => Err(Error::Amqp { what: "consume".to_owned(), source }),
        None => {
            let source = std::io::Error::other("the consumer was ended");
            Err(Error::Network { what: "consume".to_owned(), source })
        }
    }
}
