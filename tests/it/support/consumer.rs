//! The broker seen from outside: declare, publish, look into queues, consume.

use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// A connection to look around with.
pub(crate) struct Inspector {
    connection: Connection,
}

/// A message as a test reads it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// AMQP `message_id`, empty when absent.
    pub(crate) message_id: String,
    /// AMQP type, empty when absent.
    pub(crate) kind: String,
    /// Where it came from: empty is the default exchange.
    pub(crate) exchange: String,
    /// With which key.
    pub(crate) routing_key: String,
    /// Headers; what is not text as its debug form.
    pub(crate) headers: BTreeMap<String, String>,
    /// All properties.
    pub(crate) properties: BasicProperties,
    /// The bytes.
    pub(crate) body: Vec<u8>,
    /// Whether the broker says that it was delivered before.
    pub(crate) redelivered: bool,
    /// When it came, for differences.
    pub(crate) at: Instant,
    /// When it came, to compare with due times.
    pub(crate) received: SystemTime,
    tag: u64,
}

impl Delivery {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

impl From<lapin::message::Delivery> for Delivery {
    fn from(from: lapin::message::Delivery) -> Self {
        let text =
            |value: &Option<lapin::types::ShortString>| value.as_ref().map_or_else(String::new, ToString::to_string);
        let headers = from.properties.headers().clone().unwrap_or_default();
        let headers = headers.inner().iter().map(|(name, value)| (name.to_string(), plain(value)));
        Self {
            message_id: text(from.properties.message_id()),
            kind: text(from.properties.kind()),
            exchange: from.exchange.to_string(),
            routing_key: from.routing_key.to_string(),
            headers: headers.collect(),
            properties: from.properties.clone(),
            body: from.data,
            redelivered: from.redelivered,
            at: Instant::now(),
            received: SystemTime::now(),
            tag: from.delivery_tag,
        }
    }
}

impl Inspector {
    /// Connects.
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        Self { connection }
    }

    /// Declares a durable queue.
    pub(crate) async fn declare_queue(&self, name: &str, arguments: FieldTable) {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel().await.queue_declare(name.into(), durable, arguments).await.unwrap();
    }

    /// Declares a durable exchange.
    pub(crate) async fn declare_exchange(&self, name: &str, kind: ExchangeKind) {
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let channel = self.channel().await;
        channel.exchange_declare(name.into(), kind, durable, FieldTable::default()).await.unwrap();
    }

    /// Binds a queue.
    pub(crate) async fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        let channel = self.channel().await;
        let options = QueueBindOptions::default();
        channel
            .queue_bind(queue.into(), exchange.into(), routing_key.into(), options, FieldTable::default())
            .await
            .unwrap();
    }

    /// How many messages are ready; none when there is no such queue.
    pub(crate) async fn depth(&self, queue: &str) -> Option<u32> {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let declared = self.channel().await.queue_declare(queue.into(), passive, FieldTable::default()).await;
        declared.ok().map(|queue| queue.message_count())
    }

    /// Deletes a queue and what is in it.
    pub(crate) async fn delete_queue(&self, queue: &str) {
        self.channel().await.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// Publishes and waits for the ack; a message that no queue takes is no mistake here.
    pub(crate) async fn publish(&self, exchange: &str, routing_key: &str, body: &[u8], properties: BasicProperties) {
        let channel = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let options = BasicPublishOptions::default();
        let confirm =
            channel.basic_publish(exchange.into(), routing_key.into(), options, body, properties).await.unwrap();
        assert!(confirm.await.unwrap().is_ack(), "the broker refused");
    }

    /// Takes everything that is in a queue now.
    pub(crate) async fn drain(&self, queue: &str) -> Vec<Delivery> {
        let channel = self.channel().await;
        let mut all = Vec::new();
        while let Some(got) = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap() {
            all.push(got.delivery.into());
        }
        all
    }

    /// A channel of its own for each question: a question that fails closes it.
    pub(crate) async fn channel(&self) -> Channel {
        self.connection.create_channel().await.unwrap()
    }
}

/// A consumer of one queue. Dropping it closes its connection some time later; `close` waits for that.
pub(crate) struct Consumer {
    queue: String,
    channel: Channel,
    stream: lapin::Consumer,
    inspector: Inspector,
}

impl Consumer {
    /// Consumes with automatic ack.
    pub(crate) async fn new(url: &str, queue: &str) -> Self {
        Self::open(url, queue, true).await
    }

    /// Consumes with `ack` and `nack` by the test, one unacked delivery at a time.
    pub(crate) async fn manual(url: &str, queue: &str) -> Self {
        Self::open(url, queue, false).await
    }

    async fn open(url: &str, queue: &str, no_ack: bool) -> Self {
        let inspector = Inspector::connect(url).await;
        let channel = inspector.channel().await;
        // A quorum queue counts deliveries against it even with automatic ack: at 1, it hands out a few hundred a second.
        let prefetch = if no_ack { 2_000 } else { 1 };
        channel.basic_qos(prefetch, BasicQosOptions::default()).await.unwrap();
        let options = BasicConsumeOptions { no_ack, ..Default::default() };
        let stream = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap();
        Self { queue: queue.to_owned(), channel, stream, inspector }
    }

    /// The next delivery, or none `within` this time.
    pub(crate) async fn next(&mut self, within: Duration) -> Option<Delivery> {
        let next = tokio::time::timeout(within, self.stream.next()).await.ok()?;
        Some(next.expect("the consumer is not cancelled").unwrap().into())
    }

    /// Everything that is in the queue now, as fast as the broker hands it out: `drain` asks once for each message.
    ///
    /// Ends at a message of its own that it puts behind them, so that nothing is waited for that does not come.
    pub(crate) async fn drain_fast(&mut self) -> Vec<Delivery> {
        let mark = uuid::Uuid::new_v4().to_string();
        let properties = BasicProperties::default().with_message_id(mark.as_str().into());
        self.inspector.publish("", &self.queue, b"", properties).await;
        let mut all = Vec::new();
        loop {
            let next = self.next(Duration::from_secs(60)).await.expect("the mark comes");
            if next.message_id == mark {
                return all;
            }
            all.push(next);
        }
    }

    /// Acks a delivery of a manual consumer.
    pub(crate) async fn ack(&self, delivery: &Delivery) {
        self.channel.basic_ack(delivery.tag, BasicAckOptions::default()).await.unwrap();
    }

    /// Gives a delivery of a manual consumer back.
    pub(crate) async fn requeue(&self, delivery: &Delivery) {
        let options = BasicNackOptions { requeue: true, multiple: false };
        self.channel.basic_nack(delivery.tag, options).await.unwrap();
    }

    /// Ends it: what it did not ack is back in its queue.
    pub(crate) async fn close(self) {
        self.inspector.connection.close(200, "done".into()).await.unwrap();
    }
}

/// Arguments of a quorum queue.
pub(crate) fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the rest only has to be readable")]
fn plain(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => text.to_string(),
        AMQPValue::LongLongInt(n) => n.to_string(),
        AMQPValue::LongInt(n) => n.to_string(),
        AMQPValue::Boolean(yes) => yes.to_string(),
        other => format!("{other:?}"),
    }
}
