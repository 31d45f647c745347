//! Either server away: no message is lost, none is applied twice.

use super::shop::{LONG_AGO, Shop};
use crate::support::proxy::Mode;
use crate::support::wait::{secs, wait_until};

/// Each close takes a while, so that a fault comes in the middle of some.
const SLOW: &str = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.05); \
    return new; end'; create trigger slow before update on orders for each row execute function slow()";

#[tokio::test(flavor = "multi_thread")]
async fn with_the_broker_reset_again_and_again_every_order_is_closed_once() {
    let shop = Shop::new("closer_resets").await;
    let daemon = shop.daemon("");
    shop.db.batch_execute(SLOW).await.unwrap();
    shop.orders(1..=100, "pending", LONG_AGO).await;
    shop.deliver_all(1..=100).await;
    for turn in 1..=3 {
        wait_until(secs(40), async || shop.closed().await >= 20 * turn).await;
        shop.reset_broker().await;
    }
    wait_until(secs(60), async || shop.closed().await == 100).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(daemon.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"closer\"}"), Some(100.0));
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_database_away_messages_wait_on_their_channel_and_spend_no_attempt() {
    let shop = Shop::new("closer_no_db").await;
    // One would do if the machine were never so slow that a statement runs into its bound.
    let daemon = shop.daemon("max_attempts = 3");
    for mode in [Mode::Reset, Mode::BlackHole] {
        let (first, last) = if mode == Mode::Reset { (1, 50) } else { (51, 100) };
        shop.orders(first..=last, "pending", LONG_AGO).await;
        shop.between.postgres.set(mode);
        shop.deliver_all(first..=last).await;
        let begun = std::time::Instant::now();
        wait_until(secs(20), async || begun.elapsed() >= secs(5)).await;
        assert_eq!((shop.closed().await, shop.unacked()), (first - 1, 50), "{mode:?}");
        shop.between.postgres.set(Mode::Pass);
        wait_until(secs(60), async || shop.closed().await == last).await;
        shop.wait_acked().await;
    }
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
    assert_eq!(daemon.log().matches("the closer consumes queue 'due'").count(), 1, "the channel was kept");
}
