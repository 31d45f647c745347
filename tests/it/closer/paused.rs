//! Pauses: of the rule, whose messages go and whose orders are left to the sweep; and of the closer, which keeps them.

use super::shop::{LONG_AGO, Shop, refused};
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};
use std::time::Instant;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_closer_asks_once_for_all_locks_no_order_and_counts_each_message_once() {
    let shop = Shop::new("closer_pause_asked").await;
    let daemon = shop.launch_with("", "", "enabled = false\n[log]\nlevel = \"debug\"");
    daemon.wait_log("the closer consumes queue 'due'", START);
    shop.orders(1..=20, "pending", LONG_AGO).await;
    shop.db.batch_execute("insert into duebox.state (name) values ('pause.closer')").await.unwrap();
    let begun = Instant::now();
    shop.deliver_all(1..=20).await;
    wait_until(secs(20), async || refused(&daemon, "asker_paused") >= 20.0).await;
    // Nobody who looked at an order now would get past this.
    let payment = shop.between.rig.db().await;
    payment.batch_execute("begin; select from orders for update").await.unwrap();
    let asked = || daemon.log().matches("the closer is paused").count();
    wait_until(secs(60), async || asked() >= 4).await;
    let most = begun.elapsed().as_secs() / 2 + 1;
    assert!(asked() as u64 <= most, "{} questions, not {most}", asked());
    assert_eq!((refused(&daemon, "asker_paused"), refused(&daemon, "locked")), (20.0, 0.0));
    payment.batch_execute("commit").await.unwrap();
    shop.db.batch_execute("delete from duebox.state where name = 'pause.closer'").await.unwrap();
    wait_until(secs(20), async || shop.closed().await == 20).await;
    shop.wait_acked().await;
}
