//! One delivery: what is read of it, and its ack.

use crate::broker::headers::{KEY, TIER, json};
use crate::message::Message;
use crate::rule::port::Delivery;
use lapin::Channel;
use lapin::options::BasicAckOptions;
use lapin::types::ShortString;
use std::time::Duration;

/// The right to ack one delivery.
#[derive(Debug)]
pub struct Receipt {
    pub(super) channel: Channel,
    pub(super) tag: u64,
    pub(super) limit: Duration,
}

impl crate::rule::port::Receipt for Receipt {
    fn stale(&self) -> bool {
        !self.channel.status().connected()
    }

    async fn ack(self) {
        let ack = self.channel.basic_ack(self.tag, BasicAckOptions::default());
        match tokio::time::timeout(self.limit, ack).await {
            Ok(Ok(())) => {}
            // The message comes again, and changes nothing then.
            Ok(Err(error)) => tracing::debug!(%error, "an ack did not go out: {error}"),
            Err(_late) => tracing::debug!("an ack did not go out within {:?}", self.limit),
        }
    }
}

/// Reads a delivery of `queue`.
pub(super) fn read(queue: &str, from: lapin::message::Delivery, receipt: Receipt) -> Delivery<Receipt> {
    let text = |value: &Option<ShortString>| value.as_ref().map(ToString::to_string);
    let table = from.properties.headers().clone().unwrap_or_default();
    let header = |name: &str| {
        let found = table.inner().iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| json(value))?;
        found.as_str().map(str::to_owned).or_else(|| found.as_i64().map(|number| number.to_string()))
    };
    let passed = table.inner().iter().filter(|(name, _)| Message::passes(name.as_str()));
    Delivery {
        queue: queue.to_owned(),
        routing_key: from.routing_key.to_string(),
        message_id: text(from.properties.message_id()),
        kind: text(from.properties.kind()),
        content_type: text(from.properties.content_type()),
        tier: header(TIER),
        key: header(KEY),
        headers: passed.map(|(name, value)| (name.to_string(), json(value))).collect(),
        body: from.data,
        receipt,
    }
}
