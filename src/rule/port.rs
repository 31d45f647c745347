//! What the closer needs of the RabbitMQ side.

use serde_json::{Map, Value};

/// One delivery, as far as the closer reads it.
#[derive(Debug)]
pub struct Delivery<R> {
    /// The queue that it came from.
    pub queue: String,
    /// With which routing key.
    pub routing_key: String,
    /// AMQP `message_id`; nobody has to set one.
    pub message_id: Option<String>,
    /// AMQP type.
    pub kind: Option<String>,
    /// AMQP `content_type`.
    pub content_type: Option<String>,
    /// Our header with the tier.
    pub tier: Option<String>,
    /// Our header with the business id.
    pub key: Option<String>,
    /// The headers that an outbox row may have.
    pub headers: Map<String, Value>,
    /// What was sent.
    pub body: Vec<u8>,
    /// The right to ack it.
    pub receipt: R,
}

/// What a source tells.
#[derive(Debug)]
pub enum Event<R> {
    /// The queue is consumed from now on.
    Begun,
    /// A delivery.
    Delivered(Box<Delivery<R>>),
    /// The queue is not consumed, or no longer: why. Whoever asks again tries again.
    Ended(String),
}

/// The right to ack one delivery.
pub trait Receipt: Send + Sync + 'static {
    /// Whether it can no longer be acked: its channel is gone, and the broker delivers the message again.
    fn stale(&self) -> bool;

    /// Acks the delivery, within a bound of its own. The ack may be lost on its way; then the message comes again.
    fn ack(self) -> impl Future<Output = ()> + Send;
}

/// The deliveries of one queue. Dropped, it is consumed no longer; what was delivered and not acked can still be acked.
pub trait Source: Send {
    /// What comes with each delivery.
    type Receipt: Receipt;

    /// The queue.
    fn queue(&self) -> &str;

    /// What happens next; waits out an outage of the broker, whatever its length. A future that is dropped loses nothing.
    fn next(&mut self) -> impl Future<Output = Event<Self::Receipt>> + Send;
}
