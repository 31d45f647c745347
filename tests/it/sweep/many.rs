//! Many orders: few pages are read to find those that are overdue, and many at once cost neither memory nor payments.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};
use duebox::config::Mode;

/// A size that `benches/overdue.sh` makes larger.
fn size(name: &str, usual: i64) -> i64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// So many orders, of which 200 here and there are overdue and one in 25 is open.
fn orders(count: i64) -> [String; 4] {
    let insert = format!(
        "insert into orders select i, case when i % {} = 0 or i % 25 = 1 then 'pending' else 'paid' end, \
            now() + case when i % 25 = 1 then i else -3600 - i end * interval '1 s' from generate_series(1, {count}) i",
        count / 200
    );
    [
        // What an autovacuum reads would be counted as well.
        "alter table orders set (autovacuum_enabled = off)".to_owned(),
        insert,
        "vacuum analyze orders".to_owned(),
        // A session reports what it read up to 10 s late.
        "select pg_stat_force_next_flush()".to_owned(),
    ]
}

impl Shop {
    /// Pages of the table and its indexes that were read so far, by sessions that have ended.
    async fn pages_read(&self) -> i64 {
        wait_until(secs(10), async || {
            let others = "pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
                and backend_type = 'client backend'";
            self.count(others).await == 0
        })
        .await;
        let read = "select heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit \
            from pg_statio_user_tables where relname = 'orders'";
        self.db.query_one(read, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn two_hundred_overdue_orders_of_half_a_million_are_found_in_under_five_hundred_pages() {
    let count = size("ORDERS", 500_000);
    let mut shop = Shop::new("many_found").await;
    // In a session that ends: what one reads is counted late, but not later than that.
    let producer = shop.rig.db().await;
    for statement in orders(count) {
        producer.batch_execute(&statement).await.unwrap();
    }
    drop(producer);
    shop.rule.mode = Mode::Observe;
    shop.db.batch_execute("create table payments (order_id bigint)").await.unwrap();
    let other = "not exists (select from payments p where p.order_id = o.id)";
    for (what, guard) in [("no guard", None), ("a cheap one", Some("o.id > 0")), ("one over payments", Some(other))] {
        shop.rule.guard = guard.map(str::to_owned);
        let before = shop.pages_read().await;
        shop.db.execute("delete from duebox.state where name = 'sweep.unpaid'", &[]).await.unwrap();
        let running = shop.sweep();
        let found = "duebox_rule_observed{rule=\"unpaid\"} 200";
        wait_until(secs(20), async || running.metrics.render().unwrap().contains(found)).await;
        running.stop().await;
        let read = shop.pages_read().await - before;
        println!("{what}: {read} pages of {count} orders");
        assert!((1..500).contains(&read), "{what}: {read} pages");
    }
    // Without the index it would be the whole table, and the check says which index is missing.
    assert_eq!(shop.findings().await.notes.len(), 1, "what the guard reads, and nothing else");
    shop.db.batch_execute("drop index orders_due_idx").await.unwrap();
    let notes = shop.findings().await.notes;
    assert!(notes.iter().any(|note| note.contains("no index serves rule unpaid")), "{notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_orders_overdue_at_once_cost_no_memory_and_make_no_payment_wait_a_second() {
    let at_once = size("AT_ONCE", 30_000);
    let shop = Shop::new("many_at_once").await;
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    let grant = format!("grant select (id, status, due), update (status) on orders to {relay}");
    shop.db.batch_execute(&grant).await.unwrap();
    shop.orders(1..=at_once, "pending", 2_000.0).await;
    let daemon = shop.rig.daemon(
        &relay,
        "[tier.now]\ntarget = { queue = \"closed\" }\n[tier.later]\ndelay = \"1d\"\ntarget = { queue = \"closed\" }\n\
         [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
         due = \"due\"\nafter = \"1m\"\nevent = { tier = \"later\", type = \"order.closed\" }\n[log]\nlevel = \"error\"\n",
    );
    let closed = || {
        let orders = daemon.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"sweep\"}").unwrap_or_default();
        format!("{orders:.0}").parse::<i64>().unwrap()
    };
    wait_until(secs(30), async || closed() > at_once / 10).await;
    let early = daemon.vm_hwm_kib();
    let payment = shop.rig.db().await;
    payment.batch_execute("set lock_timeout = '1s'").await.unwrap();
    let mut paid = 0;
    // From both ends: right behind the sweep and right before it.
    while closed() + paid < at_once {
        for id in [closed() + paid + 1, closed() + paid + 200, closed() + paid + 400, at_once - paid] {
            let pay = "update orders set status = 'paid' where id = $1 and status = 'pending'";
            paid += i64::try_from(payment.execute(pay, &[&id]).await.expect("no payment waits for a second")).unwrap();
        }
    }
    assert_eq!(shop.count("orders where status = 'pending'").await, 0);
    assert_eq!(shop.count("orders where status = 'closed'").await, at_once - paid);
    let late = daemon.vm_hwm_kib();
    println!("{paid} of {at_once} paid; {} MiB at a tenth, {} MiB at the end", early / 1024, late / 1024);
    assert!(paid > 100, "{paid}");
    assert!(late < early + 16 * 1024, "{early} KiB, then {late} KiB");
}
