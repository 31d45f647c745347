//! The end of a relay in the middle of its work: what it closed is acked, the rest comes back.

use super::shop::{LONG_AGO, Shop};
use crate::support::between::GRACE;
use crate::support::proxy::Mode;
use crate::support::wait::{secs, wait_until};

/// Each close takes a while.
const SLOW: &str = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.1); \
    return new; end'; create trigger slow before update on orders for each row execute function slow()";

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_was_begun_and_leaves_the_rest_in_the_queue() {
    let shop = Shop::new("closer_stop").await;
    shop.db.batch_execute(SLOW).await.unwrap();
    shop.orders(1..=100, "pending", LONG_AGO).await;
    shop.deliver_all(1..=100).await;
    let mut daemon = shop.daemon("");
    wait_until(secs(20), async || shop.closed().await >= 5).await;
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(GRACE), 0, "{}", daemon.log());
    let closed = shop.closed().await;
    assert!((5..100).contains(&closed), "{closed}");
    let left = usize::try_from(100 - closed).unwrap();
    wait_until(secs(10), async || shop.unacked() == left).await;
    assert_eq!(daemon.log().matches(" closed order=").count(), usize::try_from(closed).unwrap(), "each is told");
    let daemon = shop.daemon("");
    wait_until(secs(40), async || shop.closed().await == 100).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_in_time_whatever_the_closer_waits_for() {
    let shop = Shop::new("closer_stop_away").await;
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders for update").await.unwrap();
    shop.deliver_all(1..=20).await;
    for mode in [Mode::Pass, Mode::BlackHole, Mode::Reset] {
        let mut daemon = shop.daemon("");
        wait_until(secs(20), async || super::shop::refused(&daemon, "locked") > 0.0).await;
        shop.between.postgres.set(mode);
        let begun = std::time::Instant::now();
        daemon.sigterm();
        assert_eq!(daemon.wait_exit(GRACE + secs(5)), 0, "{mode:?}: {}", daemon.log());
        eprintln!("database {mode:?}: stopped in {:?}", begun.elapsed());
        shop.between.postgres.set(Mode::Pass);
        wait_until(secs(10), async || shop.unacked() == 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_relay_loses_nothing() {
    let shop = Shop::new("closer_kill").await;
    shop.db.batch_execute(SLOW).await.unwrap();
    shop.orders(1..=60, "pending", LONG_AGO).await;
    shop.deliver_all(1..=60).await;
    for turn in 1..=2 {
        let mut daemon = shop.daemon("");
        wait_until(secs(20), async || shop.closed().await >= 15 * turn).await;
        daemon.kill9();
        daemon.wait_exit(secs(5));
    }
    let daemon = shop.daemon("");
    wait_until(secs(40), async || shop.closed().await == 60).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_relay_had_in_hand_is_closed_by_the_one_beside_it() {
    let shop = Shop::new("closer_kill_one").await;
    shop.db.batch_execute(SLOW).await.unwrap();
    shop.orders(1..=80, "pending", LONG_AGO).await;
    let (mut killed, beside) = (shop.daemon(""), shop.daemon(""));
    shop.deliver_all(1..=80).await;
    wait_until(secs(20), async || shop.closed().await >= 20).await;
    killed.kill9();
    let begun = std::time::Instant::now();
    killed.wait_exit(secs(5));
    wait_until(secs(40), async || shop.closed().await == 80).await;
    eprintln!("killed: the other relay had closed its part after {:.1?}", begun.elapsed());
    shop.wait_acked().await;
    shop.events_fit().await;
    assert!(!beside.log().contains("not ours"), "{}", beside.log());
}
