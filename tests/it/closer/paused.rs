//! Pauses: of the rule, whose messages go and whose orders are left to the sweep; and of the closer, which keeps them.

use super::shop::{LONG_AGO, Shop, refused};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_paused_rule_is_acked_and_counted() {
    let shop = Shop::new("closer_rule_paused").await;
    let daemon = shop.daemon("");
    shop.orders(1..=5, "pending", LONG_AGO).await;
    shop.db.batch_execute("insert into duebox.state (name) values ('pause.rule.unpaid')").await.unwrap();
    shop.deliver_all(1..=5).await;
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, refused(&daemon, "paused")), (0, 5.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_closer_keeps_every_message_and_goes_on_when_it_may() {
    let shop = Shop::new("closer_paused").await;
    let daemon = shop.daemon("");
    shop.orders(1..=5, "pending", LONG_AGO).await;
    shop.db.batch_execute("insert into duebox.state (name) values ('pause.closer')").await.unwrap();
    shop.deliver_all(1..=5).await;
    let waiting = "duebox_closer_waiting{queue=\"due\"}";
    wait_until(secs(20), async || daemon.metric(waiting) == Some(5.0)).await;
    assert_eq!((shop.closed().await, shop.unacked()), (0, 5));
    shop.db.batch_execute("delete from duebox.state where name = 'pause.closer'").await.unwrap();
    wait_until(secs(20), async || shop.closed().await == 5).await;
    shop.wait_acked().await;
}
