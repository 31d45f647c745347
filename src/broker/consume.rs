//! The consumer: one queue, on a channel of its own, with acks by whoever takes the deliveries.
//!
//! # Who else consumes
//!
//! AMQP tells how many consumers a queue has, and not who they are. So whoever of us consumes a queue also consumes its
//! marker, a queue `duebox.closer.QUEUE` that nobody publishes to, on the same channel: both begin and end together, and
//! the broker keeps the count of those alive. A queue with more consumers than its marker has a foreign one. The queue
//! comes first and the marker second, so that a relay that starts beside us can make us see a stranger for a moment, but
//! does not hide one: hence a second look.

mod delivery;

use super::error::{Error, describe, within};
use super::link::{Link, Up};
use crate::rule::port::Event;
pub use delivery::Receipt;
use delivery::read;
use futures_util::StreamExt;
use lapin::Channel;
use lapin::options::{BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Between two looks at who else consumes: time for another relay to consume the marker as well.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Longest name of a queue.
const MAX_NAME: usize = 255;

/// A consumer of one queue that is made again for ever.
#[derive(Debug)]
pub struct Consumer {
    link: Arc<Link>,
    /// Counts who consumes, and has to count again when we do.
    counts: Arc<Link>,
    queue: String,
    prefetch: u16,
    /// Whether others may consume the queue.
    shared: bool,
    open: Option<Open>,
    /// That there is no connection was told; until there is one, nothing else is to be told.
    told: bool,
}

/// A consumer on a channel that works.
#[derive(Debug)]
struct Open {
    up: Arc<Up>,
    channel: Channel,
    deliveries: lapin::Consumer,
    /// Dropped, it would be cancelled; nothing ever comes out of it.
    _marker: Option<lapin::Consumer>,
}

impl Open {
    /// Closes the channel, so that the broker delivers again what was not acked.
    async fn close(&self, limit: Duration) {
        let started = Instant::now();
        if !self.channel.status().connected() {
            return;
        }
        let close = self.channel.close(200, "the consumer has ended".into());
        if tokio::time::timeout(limit, close).await.is_err() {
            self.up.unanswered(started);
        }
    }
}

/// Why a queue is not consumed.
enum Refused {
    Foreign(u32),
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Consumer {
    /// A consumer on `link` that has not begun yet; the topology is checked over `counts`.
    #[must_use]
    pub fn new((link, counts): (Arc<Link>, Arc<Link>), queue: String, prefetch: u16, shared: bool) -> Self {
        Self { link, counts, queue, prefetch, shared, open: None, told: false }
    }

    /// Waits for the connection; `Err` says once that it is long in coming.
    async fn connected(&mut self) -> Result<Arc<Up>, String> {
        let mut state = self.link.state.subscribe();
        self.link.wanted.notify_one();
        let mut patience = self.limit().saturating_mul(2);
        loop {
            if self.told {
                patience = Duration::MAX;
            }
            match tokio::time::timeout(patience, state.wait_for(Option::is_some)).await {
                Ok(up) => {
                    if let Some(up) = up.ok().and_then(|up| up.clone()) {
                        self.told = false;
                        return Ok(up);
                    }
                }
                Err(_late) => {
                    self.told = true;
                    return Err(format!("no connection to RabbitMQ{}", self.link.trouble()));
                }
            }
        }
    }

    /// Waits for the connection and consumes.
    async fn begin(&mut self) -> Result<Open, String> {
        let up = self.connected().await?;
        let started = Instant::now();
        match self.consume(Arc::clone(&up)).await {
            Ok(open) => Ok(open),
            Err(Refused::Foreign(count)) => Err(format!(
                "{count} consumer(s) that are not ours are on queue '{}': it is not consumed here, for each message goes \
                 to one consumer only; take theirs away, or set [closer] shared = true",
                self.queue
            )),
            Err(Refused::Failed(error)) => {
                if matches!(error, Error::Deadline { .. }) {
                    up.unanswered(started);
                }
                Err(error.to_string())
            }
        }
    }

    async fn consume(&self, up: Arc<Up>) -> Result<Open, Refused> {
        let marker = match self.marker(&up).await {
            // Somebody whom it does not let declare a queue can still share.
            Err(error) if self.shared => {
                tracing::debug!(%error, "no marker: {error}");
                None
            }
            marker => Some(marker?),
        };
        if let Some(marker) = marker.as_deref().filter(|_| !self.shared)
            && self.strangers(&up, marker).await? > 0
        {
            tokio::time::sleep(SECOND_LOOK).await;
            let count = self.strangers(&up, marker).await?;
            if count > 0 {
                return Err(Refused::Foreign(count));
            }
        }
        let what = format!("consume queue '{}'", self.queue);
        let consumed = within(&what, self.limit(), async {
            let channel = up.connection.create_channel().await.map_err(Error::amqp(&what))?;
            channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(Error::amqp(&what))?;
            let consume = async |queue: &str| {
                let (tag, options) = (format!("duebox-{}", Uuid::new_v4()), BasicConsumeOptions::default());
                channel.basic_consume(queue.into(), tag.into(), options, FieldTable::default()).await
            };
            let deliveries = consume(&self.queue).await.map_err(Error::amqp(&what))?;
            let marker = match marker {
                Some(marker) => Some(consume(&marker).await.map_err(Error::amqp(format!("consume queue '{marker}'")))?),
                None => None,
            };
            Ok((channel, deliveries, marker))
        });
        let (channel, deliveries, marker) = consumed.await?;
        Ok(Open { up, channel, deliveries, _marker: marker })
    }

    fn limit(&self) -> Duration {
        self.link.settings.connect_timeout
    }

    /// Declares the marker, which goes away with its last consumer; its name.
    async fn marker(&self, up: &Up) -> Result<String, Error> {
        let name = marker_of(&self.queue);
        // Durable, for a queue that is neither durable nor exclusive is refused by some brokers; classic, for a quorum
        // queue cannot go away by itself.
        let options = QueueDeclareOptions { durable: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
        self.declare(up, &name, options, arguments).await?;
        Ok(name)
    }

    /// Consumers of the queue that are not ours, whichever relay's. The marker is looked at first: whoever leaves
    /// between the two looks hides nobody.
    async fn strangers(&self, up: &Up, marker: &str) -> Result<u32, Error> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let ours = self.declare(up, marker, passive, FieldTable::default()).await?;
        let all = self.declare(up, &self.queue, passive, FieldTable::default()).await?;
        Ok(all.saturating_sub(ours))
    }

    /// Declares or looks at a queue on a channel of its own, which a refusal would close; its consumers.
    async fn declare(
        &self,
        up: &Up,
        queue: &str,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> Result<u32, Error> {
        let what = format!("look who consumes queue '{queue}'");
        within(&what, self.limit(), async {
            let channel = up.connection.create_channel().await.map_err(Error::amqp(&what))?;
            let found = channel.queue_declare(queue.into(), options, arguments).await.map_err(Error::amqp(&what))?;
            Ok(found.consumer_count())
        })
        .await
    }

    /// The next delivery of what is open; `Err` says why there are no more.
    async fn delivery(link: &Link, open: &mut Open) -> Result<lapin::message::Delivery, String> {
        let (mut state, id) = (link.state.subscribe(), open.up.id);
        let another = |now: &Option<Arc<Up>>| now.as_ref().is_none_or(|now| now.id != id);
        tokio::select! {
            _lost = state.wait_for(another) => Err("connection lost".to_owned()),
            next = open.deliveries.next() => match next {
                Some(Ok(delivery)) => Ok(delivery),
                Some(Err(error)) => Err(describe(&error)),
                None => Err("the broker has ended the consumer: the queue was deleted, or has moved".to_owned()),
            },
        }
    }
}

impl crate::rule::port::Source for Consumer {
    type Receipt = Receipt;

    fn queue(&self) -> &str {
        &self.queue
    }

    async fn next(&mut self) -> Event<Receipt> {
        let Some(open) = &mut self.open else {
            return match self.begin().await {
                Ok(open) => {
                    self.open = Some(open);
                    self.counts.check.notify_one();
                    Event::Begun
                }
                Err(reason) => Event::Ended(reason),
            };
        };
        match Self::delivery(&self.link, open).await {
            Ok(delivery) => {
                let (channel, limit) = (open.channel.clone(), self.link.settings.connect_timeout);
                let receipt = Receipt { channel, tag: delivery.delivery_tag, limit };
                Event::Delivered(Box::new(read(&self.queue, delivery, receipt)))
            }
            Err(reason) => {
                // Ended by a basic.cancel, it leaves its channel open, and with it whatever was not acked.
                open.close(self.link.settings.connect_timeout).await;
                self.open = None;
                Event::Ended(reason)
            }
        }
    }
}

/// The name of the marker of a queue.
fn marker_of(queue: &str) -> String {
    let name = format!("duebox.closer.{queue}");
    if name.len() <= MAX_NAME {
        return name;
    }
    format!("duebox.closer.{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, queue.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_has_a_marker_of_its_own_whose_name_fits() {
        assert_eq!(marker_of("order.due"), "duebox.closer.order.due");
        let long = |end: &str| format!("{}{end}", "q".repeat(250));
        let (one, other) = (marker_of(&long("a")), marker_of(&long("b")));
        assert!(one != other && one.len() <= MAX_NAME && other.len() <= MAX_NAME, "{one}, {other}");
    }
}
