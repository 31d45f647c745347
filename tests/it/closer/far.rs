//! A database that is too far away for a close, and a commit that nobody hears the end of: neither is passed over in silence.

use super::shop::{LONG_AGO, Shop};
use crate::support::proxy::Mode;
use crate::support::wait::{secs, wait_until};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_farther_away_than_a_close_may_be_silent_is_named_and_spends_no_attempt() {
    let shop = Shop::new("closer_far").await;
    let daemon = shop.daemon("max_attempts = 1");
    shop.between.postgres.set(Mode::Delay(Duration::from_millis(250)));
    shop.orders(1..=10, "pending", LONG_AGO).await;
    shop.deliver_all(1..=10).await;
    daemon.wait_log("closes lost their connection to the database", secs(60));
    assert_eq!((shop.closed().await, shop.unacked()), (0, 10));
    shop.between.postgres.set(Mode::Pass);
    wait_until(secs(60), async || shop.closed().await == 10).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
    assert_eq!(daemon.log().matches("closes lost their connection").count(), 1, "said once");
}

/// What no statement's bound covers: a trigger that defers another to the commit.
const DEFERRED: &str = "alter table orders add touched int; \
    create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(7); return new; end'; \
    create constraint trigger slow after update of touched on orders deferrable initially deferred \
    for each row execute function slow(); \
    create function touch() returns trigger language plpgsql security definer as $$ begin set constraints all deferred; \
    update public.orders set touched = 1 where id = new.id; return new; end $$; \
    create constraint trigger touch after update of status on orders deferrable initially deferred \
    for each row execute function touch()";

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_commit_takes_too_long_is_named_as_unknown() {
    let shop = Shop::new("closer_unheard").await;
    let daemon = shop.daemon("max_attempts = 1");
    shop.db.batch_execute(DEFERRED).await.unwrap();
    shop.orders(7..=7, "pending", LONG_AGO).await;
    shop.deliver("7").await;
    daemon.wait_log("whether these orders were changed is not known", secs(30));
    assert!(daemon.log().lines().any(|line| line.contains("is not known") && line.contains("orders=\"7\"")));
    wait_until(secs(30), async || shop.closed().await == 1).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}
