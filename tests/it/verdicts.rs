//! What becomes of a message is decided from the broker's answers, and no other message pays for it.

mod bad_input;
mod full_queue;
mod hops;
mod returned;
mod too_large;

use crate::support::consumer::{Inspector, quorum};
use crate::support::rig::Rig;
use crate::support::wait::wait_until;
use lapin::ExchangeKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// An eye on the rig's broker, where the exchange `shop` leads each of these keys to the queue of that name.
async fn shop(rig: &Rig, keys: &[&str]) -> Inspector {
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_exchange("shop", ExchangeKind::Direct).await;
    for key in keys {
        broker.declare_queue(key, quorum()).await;
        broker.bind(key, "shop", key).await;
    }
    broker
}

/// Empties a queue until `n` different messages have come: each `message_id`, and how often.
async fn arrivals(broker: &Inspector, queue: &str, n: usize, within: Duration) -> BTreeMap<String, usize> {
    let mut came = BTreeMap::new();
    wait_until(within, async || {
        for delivery in broker.drain(queue).await {
            *came.entry(delivery.message_id).or_insert(0) += 1;
        }
        came.len() >= n
    })
    .await;
    came
}

/// How many of these came more than once.
fn repeated(came: &BTreeMap<String, usize>) -> usize {
    came.values().filter(|times| **times > 1).count()
}
