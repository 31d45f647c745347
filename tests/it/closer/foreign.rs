//! A queue that somebody else consumes is left alone, and said so; another relay is nobody else.

use super::shop::{LONG_AGO, Shop};
use crate::support::consumer::Consumer;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_consumer_keeps_the_closer_away_until_it_leaves() {
    let shop = Shop::new("closer_foreign").await;
    let foreign = Consumer::manual(&shop.between.rig.amqp_url(), "due").await;
    let daemon = shop.launch("", "");
    let said = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    wait_until(START, async || said().contains("[closer] shared = true")).await;
    assert!(said().contains("1 consumer(s) that are not ours are on queue 'due'"), "{}", said());
    assert!(!daemon.log().contains("the closer consumes"));
    foreign.close().await;
    daemon.wait_log("the closer consumes queue 'due'", secs(40));
    wait_until(secs(5), async || !said().contains("not ours")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_may_be_shared() {
    let shop = Shop::new("closer_shared").await;
    let foreign = Consumer::manual(&shop.between.rig.amqp_url(), "due").await;
    let daemon = shop.daemon("shared = true");
    shop.orders(1..=10, "pending", LONG_AGO).await;
    shop.deliver_all(1..=10).await;
    // It has one of them and does not ack.
    wait_until(secs(20), async || shop.closed().await == 9).await;
    foreign.close().await;
    wait_until(secs(20), async || shop.closed().await == 10).await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_beside_each_other_share_the_queue_also_after_a_reset() {
    let shop = Shop::new("closer_beside").await;
    let relays = [shop.launch("", ""), shop.launch("", ""), shop.launch("", "")];
    for relay in &relays {
        relay.wait_log("the closer consumes queue 'due'", START);
    }
    let again = || relays.iter().map(|relay| relay.log().matches("the closer consumes queue 'due'").count());
    shop.reset_broker().await;
    wait_until(secs(40), async || again().all(|times| times >= 2)).await;
    shop.orders(1..=200, "pending", LONG_AGO).await;
    shop.deliver_all(1..=200).await;
    wait_until(secs(30), async || shop.closed().await == 200).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    for relay in &relays {
        let closed = relay.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"closer\"}");
        assert!(closed > Some(0.0), "each has its part: {closed:?}\n{}", relay.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_consumed_again_when_it_is_back() {
    let shop = Shop::new("closer_deleted").await;
    let daemon = shop.daemon("");
    // Who consumes is counted when it begins; a check at the moment of the deletion would declare the queue at once, and
    // the broker then does not tell its consumer.
    let counted = || daemon.metric("duebox_target_consumers{tier=\"unpaid-2s\"}");
    wait_until(secs(20), async || counted() == Some(1.0)).await;
    let deleted = Instant::now();
    shop.broker.delete_queue("due").await;
    daemon.wait_log("closer of queue 'due': the broker has ended the consumer", secs(20));
    let seen = deleted.elapsed();
    shop.broker.declare_queue("due", crate::support::consumer::quorum()).await;
    let back = Instant::now();
    wait_until(secs(40), async || daemon.log().matches("the closer consumes queue 'due'").count() == 2).await;
    eprintln!("the queue is deleted: seen after {seen:.1?}, consumed again after {:.1?}", back.elapsed());
    shop.orders(1..=1, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(20), async || shop.status(1).await == "closed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_when_the_broker_ended_the_consumer_is_held_no_longer() {
    let shop = Shop::new("closer_cancelled").await;
    let daemon = shop.daemon("");
    shop.orders(1..=3, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders for update").await.unwrap();
    shop.deliver_all(1..=3).await;
    let waiting = || daemon.metric("duebox_closer_waiting{queue=\"due\"}");
    wait_until(secs(20), async || waiting() == Some(3.0)).await;
    // The consumer ends with its queue, and not its channel: who holds that holds what came on it.
    let channels = || {
        shop.between.rig.rabbit().eval(&format!(
        "length([c || [{{vhost, <<\"{}\">>}}, {{prefetch_count, 50}}] <- rabbit_channel:info_all([vhost, prefetch_count])])",
        shop.between.rig.name()
    ))
    };
    assert_eq!(channels().trim(), "1");
    shop.broker.delete_queue("due").await;
    daemon.wait_log("closer of queue 'due': the broker has ended the consumer", secs(20));
    wait_until(secs(10), async || channels().trim() == "0" && waiting() == Some(0.0)).await;
}
