//! An order that somebody keeps locked is closed when it is free, and holds nobody up.

use super::shop::{LONG_AGO, Shop, message, refused};
use crate::support::db::Db;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};
use std::time::Instant;

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
    shop.orders(1..=8, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders where id <= 6 for update").await.unwrap();
    shop.deliver_all(1..=8).await;
    wait_until(secs(40), async || shop.closed().await == 2).await;
    assert!(shop.db.count("tier = 'unpaid-2s' and due_at > now()").await > 0, "{}", daemon.log());
    // Looked at again and again, each of them keeps the one row that it has.
    wait_until(secs(60), async || {
        shop.db.batch_execute(NOW).await.unwrap();
        daemon.metric("duebox_closer_put_off_total{queue=\"due\"}") >= Some(14.0)
    })
    .await;
    assert!(shop.count("duebox.outbox where tier = 'unpaid-2s'").await <= 6, "{}", daemon.log());
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || {
        shop.db.batch_execute(NOW).await.unwrap();
        shop.closed().await == 8
    })
    .await;
    shop.wait_acked().await;
    shop.events_fit().await;
}

/// Each of them would be waited for two seconds, by five at a time, again and again: over two minutes in all.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_locked_orders_in_front_hold_up_none_behind_them() {
    let shop = Shop::new("closer_locked_front").await;
    shop.orders(1..=120, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders where id <= 100 for update").await.unwrap();
    shop.deliver_all(1..=120).await;
    let daemon = shop.daemon("");
    wait_until(secs(60), async || shop.closed().await == 20).await;
    daemon.wait_log("rule unpaid: so many orders cannot be closed that their messages go back to the outbox", secs(30));
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(90), async || {
        shop.db.batch_execute(NOW).await.unwrap();
        shop.closed().await == 120
    })
    .await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0, "{}", daemon.log());
}

/// Those that are held are due, and leave at once.
const NOW: &str = "update duebox.outbox set due_at = now(), available_at = now() \
    where tier in ('unpaid-2s', 'other-2s') and sent_at is null and available_at > now(); select duebox.ring()";

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
    // Whoever waits for a row that others wait for has several locks to wait for, and less time than they take.
    wait_until(secs(40), async || refused(&daemon, "locked") + refused(&daemon, "slow") >= 15.0).await;
    assert!(refused(&daemon, "locked") > 0.0);
    assert_eq!((shop.closed().await, shop.db.count("true").await), (0, 0));
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 5).await;
    shop.wait_acked().await;
    shop.events_fit().await;
    assert_eq!(shop.count("stock where free = 5").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_that_takes_too_long_is_named_as_slow_and_spends_no_attempt() {
    let shop = Shop::new("closer_slow").await;
    let slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(1); return new; end'; \
        create trigger slow before update on orders for each row execute function slow()";
    shop.db.batch_execute(slow).await.unwrap();
    let daemon = shop.daemon("max_attempts = 2");
    shop.orders(1..=2, "pending", LONG_AGO).await;
    shop.deliver_all(1..=2).await;
    wait_until(secs(40), async || refused(&daemon, "slow") >= 6.0).await;
    assert_eq!((refused(&daemon, "locked"), shop.closed().await, shop.unacked()), (0.0, 0, 2));
    shop.db.batch_execute("drop trigger slow on orders").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 2).await;
    shop.wait_acked().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}

/// Locking an order runs nothing of the shop's.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_somebody_ends_while_they_wait_for_a_lock_spend_no_attempt() {
    let shop = Shop::new("closer_waits_ended").await;
    let daemon = shop.daemon("max_attempts = 1");
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let other = shop.between.rig.db().await;
    other.batch_execute("begin; select from orders for update").await.unwrap();
    shop.deliver_all(1..=1).await;
    let end = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity \
         where usename = '{}' and state = 'active' and query like '%for update%'",
        shop.between.role()
    );
    let superuser = shop.between.superuser().await;
    // More often in a row than it takes to blame an order for it.
    let mut ended = 0;
    wait_until(secs(120), async || {
        ended += superuser.query_one(&end, &[]).await.unwrap().get::<_, i64>(0);
        ended >= 5
    })
    .await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0, "{}", daemon.log());
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(90), async || shop.closed().await == 1).await;
    shop.wait_acked().await;
}

/// A second rule, over a table of its own, whose messages come to the same queue.
const OTHER: &str = "[tier.other-2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n\
    [rule.other]\ntable = \"others\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\ntier = \"other-2s\"\n";

/// What is said of it; who has the table locked, and a statement that finds that out, follow.
const LOCKED: &str = "rule other: no answer in time about table others of rule other: ";

/// Whether the rule was prepared when the migration came, or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_migration_locks_later_holds_up_its_own_rule_alone_and_is_named() {
    let shop = Shop::new("closer_table_later").await;
    let others = others(&shop).await;
    let daemon = shop.launch("", OTHER);
    daemon.wait_log("the closer consumes queue 'due'", START);
    shop.publish(b"{}", message(Some("other-2s"), Some("1"))).await;
    wait_until(secs(20), async || shop.count("others where status = 'closed'").await == 1).await;
    others.batch_execute("begin; lock table others").await.unwrap();
    for id in 2..=30 {
        shop.publish(b"{}", message(Some("other-2s"), Some(&id.to_string()))).await;
    }
    shop.orders(1..=10, "pending", LONG_AGO).await;
    shop.deliver_all(1..=10).await;
    let begun = Instant::now();
    wait_until(secs(60), async || shop.closed().await == 10).await;
    assert!(begun.elapsed() < secs(30), "{:?}", begun.elapsed());
    let said = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    wait_until(secs(30), async || said().contains(LOCKED)).await;
    others.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || {
        shop.db.batch_execute(NOW).await.unwrap();
        shop.count("others where status = 'closed'").await == 30
    })
    .await;
    wait_until(secs(20), async || !said().contains("rule other")).await;
    shop.wait_acked().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0, "{}", daemon.log());
}

/// The other rule's table, and a session of its owner's.
async fn others(shop: &Shop) -> Db {
    let others = format!(
        "create table others (like orders including all); grant select, update (status) on others to {}; \
         insert into others select i, 'pending', now() - interval '1 h' from generate_series(1, 30) i",
        shop.between.role()
    );
    shop.db.batch_execute(&others).await.unwrap();
    shop.between.rig.db().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_migration_has_locked_holds_up_its_own_rule_alone_and_is_named() {
    let shop = Shop::new("closer_table").await;
    let migration = others(&shop).await;
    migration.batch_execute("begin; lock table others").await.unwrap();
    // More than the closer is given at a time: they must not be all that it has.
    let daemon = shop.launch("prefetch = 10", OTHER);
    daemon.wait_log("the closer consumes queue 'due'", START);
    for id in 1..=30 {
        shop.publish(b"{}", message(Some("other-2s"), Some(&id.to_string()))).await;
    }
    shop.orders(1..=10, "pending", LONG_AGO).await;
    shop.deliver_all(1..=10).await;
    wait_until(secs(60), async || shop.closed().await == 10).await;
    let said = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    wait_until(secs(20), async || said().contains(LOCKED)).await;
    migration.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || {
        shop.db.batch_execute(NOW).await.unwrap();
        shop.count("others where status = 'closed'").await == 30
    })
    .await;
    wait_until(secs(10), async || !said().contains("rule other")).await;
    shop.wait_acked().await;
    assert_eq!(daemon.log().matches(LOCKED).count(), 1, "said once, not for each message");
}
