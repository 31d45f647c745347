//! The sweep of the real daemon, with nothing else that works.

use super::shop::Shop;
use crate::support::daemon::Daemon;
use crate::support::run::free_port;
use crate::support::wait::{secs, wait_until};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_is_not_enabled_does_not_look_at_any_order() {
    let shop = Shop::new("sweep_disabled").await;
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    shop.db.batch_execute(&format!("grant select, update on orders to {relay}")).await.unwrap();
    shop.orders(1..=10, "pending", 2_000.0).await;
    // What was read to make the index does not count.
    shop.db.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    shop.rig.postgres().sql(shop.rig.name(), "select pg_stat_reset()");
    let mut daemon = shop.rig.daemon(
        &relay,
        "[tier.now]\ntarget = { queue = \"closed\" }\n[sweep]\nenabled = false\nevery = \"100ms\"\n\
         [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
         due = \"due\"\nafter = \"2s\"\nevent = { tier = \"now\", type = \"order.closed\" }\n",
    );
    daemon.wait_ready(secs(30));
    // A sweep begins with a pass, before the daemon is ready; by now it would have had time for many.
    for sent in 1..=3 {
        shop.db.insert_rows("now", 1).await;
        wait_until(secs(20), async || shop.db.count("sent_at is not null").await == sent).await;
    }
    assert_eq!(shop.count("duebox.state where name like 'sweep.%'").await, 0, "a pass was taken");
    // Its sessions report what they read when they end.
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(15)), 0, "{}", daemon.log());
    let looks = "pg_stat_user_tables where relname = 'orders' and seq_scan + coalesce(idx_scan, 0) > 0";
    assert_eq!((shop.count(looks).await, shop.count("orders where status = 'pending'").await), (0, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_rabbitmq_dead_from_the_start_unpaid_orders_are_closed_in_time_and_paid_ones_kept() {
    let shop = Shop::new("sweep_no_broker").await;
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    let grant = format!("grant select (id, status, due), update (status) on orders to {relay}");
    shop.db.batch_execute(&grant).await.unwrap();
    let mut base = shop.rig.relay_base(&relay);
    base.rabbit_port = free_port();
    let tables = "[tier.now]\ntarget = { queue = \"closed\" }\n\
        [sweep]\nevery = \"1s\"\ngrace = \"1s\"\n\
        [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
        due = \"due\"\nafter = \"2s\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";
    let mut daemon = Daemon::start(&shop.rig, &format!("{}{tables}", base.render()));
    daemon.wait_log("is running", secs(20));
    shop.orders(1..=100, "pending", 0.0).await;
    shop.orders(101..=200, "paid", 0.0).await;
    let placed = Instant::now();
    wait_until(secs(20), async || shop.count("orders where status = 'closed'").await == 100).await;
    // Due after 2 s, then `every` and `grace` of 1 s each; the rest is this test's own.
    assert!(placed.elapsed() < secs(6), "closed after {:?}", placed.elapsed());
    let early = "duebox.outbox where (payload ->> 'closed_at')::timestamptz < (payload ->> 'due_at')::timestamptz";
    assert_eq!(shop.count(early).await, 0);
    assert_eq!(shop.count("orders where status = 'paid' and id > 100").await, 100);
    let events = "orders o join duebox.outbox e on e.key = o.id::text and e.type = 'order.closed' and e.sent_at is null \
        where o.status = 'closed'";
    assert_eq!((shop.count(events).await, shop.db.count("true").await), (100, 100));
    let line = daemon.wait_log("order 42 closed", secs(5));
    let message_id: String =
        shop.db.query_one("select message_id::text from duebox.outbox where key = '42'", &[]).await.unwrap().get(0);
    for word in ["order=\"42\"", "rule=\"unpaid\"", "from=\"pending\"", "to=\"closed\"", "by=\"sweep\"", &message_id] {
        assert!(line.contains(word), "{word} in {line}");
    }
    assert_eq!(daemon.log().matches("closed order=").count(), 100, "{}", daemon.log());
    assert_eq!(daemon.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"sweep\"}"), Some(100.0));
    for untouched in ["refused_total{rule=\"unpaid\",by=\"closer\",reason=\"locked\"}", "observed{rule=\"unpaid\"}"] {
        assert_eq!(daemon.metric(&format!("duebox_rule_{untouched}")), Some(0.0), "{untouched}");
    }
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(15)), 0, "{}", daemon.log());
}
