//! A message that comes early waits: here when its moment is near, and otherwise in the outbox.

use super::shop::{AFTER, LONG_AGO, Shop};
use crate::support::wait::{secs, wait_until};

const WAITING: &str = "duebox_closer_waiting{queue=\"due\"}";

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_a_little_early_waits_unacked_and_its_order_is_closed_in_time() {
    let shop = Shop::new("closer_early").await;
    let daemon = shop.daemon("concurrency = 1");
    shop.orders(1..=1, "pending", AFTER - 4.0).await;
    shop.orders(2..=2, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(10), async || daemon.metric(WAITING) == Some(1.0)).await;
    // Nobody is held up by it.
    shop.deliver("2").await;
    wait_until(secs(20), async || shop.status(2).await == "closed" && shop.unacked() <= 1).await;
    assert_eq!((shop.status(1).await, shop.unacked()), ("pending".into(), 1));
    wait_until(secs(20), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    let early =
        "type = 'order.closed' and (payload ->> 'closed_at')::timestamptz < (payload ->> 'due_at')::timestamptz";
    assert_eq!(shop.db.count(early).await, 0);
    assert_eq!(shop.db.count("type is distinct from 'order.closed'").await, 0, "nothing was held");
    shop.events_fit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_very_early_waits_in_the_outbox_and_comes_back_when_its_order_is_due() {
    let shop = Shop::new("closer_very_early").await;
    let daemon = shop.daemon("");
    shop.orders(1..=1, "pending", AFTER - 8.0).await;
    // Three times the same: there is one row.
    for _ in 0..3 {
        shop.deliver("1").await;
    }
    shop.wait_acked().await;
    let held = "key = '1' and tier = 'unpaid-2s' and sent_at is null and available_at = due_at \
        and due_at = (select due + interval '2 s' from orders) and headers = '{\"traceparent\": \"00-ab\"}' \
        and body = '{}' and content_type = 'application/json'";
    assert_eq!((shop.db.count(held).await, shop.db.count("true").await), (1, 1));
    daemon.wait_log("the message of order 1 is held in the outbox: it is overdue in", secs(5));
    wait_until(secs(30), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("key = '1'").await, 2);
    assert_eq!(daemon.metric("duebox_closer_put_off_total{queue=\"due\"}"), Some(3.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefetch_full_of_early_messages_starves_no_order_that_is_due() {
    let shop = Shop::new("closer_starve").await;
    let daemon = shop.daemon("prefetch = 4");
    shop.orders(1..=40, "pending", AFTER - 4.5).await;
    shop.orders(41..=45, "pending", LONG_AGO).await;
    shop.deliver_all(1..=45).await;
    wait_until(secs(30), async || shop.count("orders where id > 40 and status = 'closed'").await == 5).await;
    assert!(shop.db.count("tier = 'unpaid-2s'").await > 0, "more waited than half the prefetch: {}", daemon.log());
    wait_until(secs(40), async || shop.closed().await == 45).await;
    shop.wait_acked().await;
    shop.events_fit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_was_cancelled_and_is_wanted_again_comes_and_one_beyond_all_years_harms_nobody() {
    let shop = Shop::new("closer_again").await;
    let mut daemon = shop.daemon("");
    shop.orders(1..=1, "pending", AFTER - 12.0).await;
    shop.orders(2..=2, "pending", LONG_AGO).await;
    shop.db.batch_execute("update orders set due = '9999-12-31 23:59:59.9Z' where id = 2").await.unwrap();
    shop.deliver("2").await;
    daemon.wait_log("the message of order 2 is held in the outbox", secs(20));
    shop.deliver("1").await;
    shop.wait_acked().await;
    let cancelled = "select duebox.cancel('unpaid-2s', '1')";
    assert!(shop.db.query_one(cancelled, &[]).await.unwrap().get::<_, bool>(0));
    shop.deliver("1").await;
    wait_until(secs(40), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    assert_eq!(shop.status(2).await, "pending");
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(15)), 0, "{}", daemon.log());
}
