//! The memory alarm of the broker stops whoever publishes, and not the closer.

use super::shop::{LONG_AGO, Shop, refused};
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn with_the_memory_alarm_on_orders_are_closed_and_their_messages_acked() {
    let shop = Shop::on(Rig::private("closer_alarm", Own::Rabbit)).await;
    let server = shop.between.rig.rabbit();
    let daemon = shop.daemon("");
    daemon.wait_ready(secs(20));
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders for update").await.unwrap();
    shop.deliver_all(1..=20).await;
    wait_until(secs(20), async || refused(&daemon, "locked") > 0.0).await;
    server.eval("vm_memory_monitor:set_vm_memory_high_watermark(0.00001)");
    // The broker tells a connection only when it publishes.
    shop.db.insert_rows("now", 10).await;
    daemon.wait_unready(secs(20));
    assert!(daemon.get("/readyz").unwrap().1.contains("rabbitmq: the broker blocks publishing"));
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 20).await;
    shop.wait_acked().await;
    assert!(daemon.get("/readyz").unwrap().1.contains("rabbitmq: the broker blocks publishing"), "still");
    // The rig gives each broker 2 GiB.
    server.eval("vm_memory_monitor:set_vm_memory_high_watermark({absolute, \"2GiB\"})");
    daemon.wait_ready(secs(20));
    shop.events_fit().await;
}
