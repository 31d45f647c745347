//! An order that somebody keeps locked is closed when it is free, and holds nobody up.

use super::shop::{LONG_AGO, Shop, refused};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_order_is_tried_again_and_spends_no_attempt() {
    let shop = Shop::new("closer_locked").await;
    let daemon = shop.daemon("max_attempts = 2");
    shop.orders(1..=10, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders where id = 1 for update").await.unwrap();
    shop.deliver_all(1..=10).await;
    wait_until(secs(20), async || shop.closed().await == 9).await;
    wait_until(secs(40), async || refused(&daemon, "locked") >= 3.0).await;
    assert_eq!(shop.unacked(), 1);
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 10).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefetch_full_of_locked_orders_starves_no_other() {
    let shop = Shop::new("closer_all_locked").await;
    let daemon = shop.daemon("prefetch = 4");
    shop.orders(1..=12, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders where id <= 10 for update").await.unwrap();
    shop.deliver_all(1..=12).await;
    wait_until(secs(40), async || shop.closed().await == 2).await;
    assert!(shop.db.count("tier = 'unpaid-2s' and due_at > now()").await > 0, "{}", daemon.log());
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 12).await;
    shop.events_fit().await;
}
