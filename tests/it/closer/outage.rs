//! Either server away: no message is lost, none is applied twice.

use super::shop::{LONG_AGO, Shop};
use crate::support::proxy::Mode;
use crate::support::relay::START;
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

/// The event waits to be written; the order is updated by then.
const WAIT_IN_EVENT: &str = "create function wait() returns trigger language plpgsql as $$ begin \
    if new.type = 'order.closed' then perform pg_advisory_xact_lock_shared(1); end if; return new; end $$; \
    create trigger wait before insert on duebox.outbox for each row execute function wait()";

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_ended_between_close_and_event_leave_neither_and_the_next_try_does_both() {
    let shop = Shop::new("closer_between").await;
    let daemon = shop.daemon("max_attempts = 1");
    shop.db.batch_execute(WAIT_IN_EVENT).await.unwrap();
    shop.orders(1..=10, "pending", LONG_AGO).await;
    shop.db.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    shop.deliver_all(1..=10).await;
    let admin = shop.between.superuser().await;
    let (end, mut ended) = (
        format!(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where datname = '{}' and wait_event_type = 'Lock' and wait_event = 'advisory'",
            shop.between.rig.name()
        ),
        0,
    );
    let begun = std::time::Instant::now();
    while ended < 6 {
        assert!(begun.elapsed() < secs(40), "{ended} sessions were ended: {}", daemon.log());
        ended += admin.query_one(&end, &[]).await.unwrap().get::<_, i64>(0);
    }
    assert_eq!((shop.closed().await, shop.db.count("true").await), (0, 0));
    shop.db.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 10).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_database_away_messages_wait_on_their_channel_and_spend_no_attempt() {
    let shop = Shop::new("closer_no_db").await;
    let daemon = shop.launch_with("max_attempts = 1", "", "enabled = false\n[log]\nlevel = \"debug\"");
    daemon.wait_log("the closer consumes queue 'due'", START);
    // Its rule is known from here on, so that each order is asked for by itself.
    shop.orders(0..=0, "pending", LONG_AGO).await;
    shop.deliver("0").await;
    wait_until(secs(20), async || shop.closed().await == 1).await;
    for (first, mode) in [(1, Mode::Reset), (11, Mode::BlackHole)] {
        let last = first + 9;
        shop.orders(first..=last, "pending", LONG_AGO).await;
        shop.between.postgres.set(mode);
        shop.deliver_all(first..=last).await;
        let tried = |log: &str, id: i64| {
            let (what, order) = ("the closer waits: ", format!("order=\"{id}\""));
            log.lines().any(|line| line.contains(what) && line.contains(&order))
        };
        wait_until(secs(60), async || {
            let log = daemon.log();
            (first..=last).all(|id| tried(&log, id))
        })
        .await;
        assert_eq!((shop.closed().await, shop.unacked()), (first, 10), "{mode:?}");
        shop.between.postgres.set(Mode::Pass);
        wait_until(secs(60), async || shop.closed().await == last + 1).await;
        shop.wait_acked().await;
    }
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
    assert_eq!(daemon.log().matches("the closer consumes queue 'due'").count(), 1, "the channel was kept");
}
