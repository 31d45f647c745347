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

/// Closing gives the stock back.
const STOCK: &str = "create table stock (item bigint primary key, free bigint not null); insert into stock values (1, 0); \
    create function give_back() returns trigger language plpgsql security definer as $$ begin \
    if new.status = 'closed' then update public.stock set free = free + 1 where item = 1; end if; return new; end $$; \
    create trigger give_back before update on orders for each row execute function give_back()";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_trigger_waits_for_is_waited_for_and_spends_no_attempt() {
    let shop = Shop::new("closer_stock").await;
    shop.db.batch_execute(STOCK).await.unwrap();
    let daemon = shop.daemon("max_attempts = 2");
    shop.orders(1..=5, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from stock for update").await.unwrap();
    shop.deliver_all(1..=5).await;
    wait_until(secs(40), async || refused(&daemon, "locked") >= 15.0).await;
    assert_eq!((shop.closed().await, shop.db.count("true").await), (0, 0));
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 5).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.count("stock where free = 5").await, 1);
}
