//! What is closed, and what is written beside it.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};

const LONG_AGO: f64 = 2_000.0;

#[tokio::test]
async fn overdue_orders_are_closed_with_one_event_each_and_all_others_are_kept() {
    let shop = Shop::new("sweep_closes").await;
    shop.orders(1..=120, "pending", LONG_AGO).await;
    shop.orders(201..=203, "paid", LONG_AGO).await;
    shop.orders(301..=301, "refunded", LONG_AGO).await;
    shop.orders(401..=401, "pending", 1_790.0).await;
    // Overdue, but not by more than the grace: its message may still be on the way.
    shop.orders(402..=402, "pending", 1_830.0).await;
    let running = shop.sweep();
    shop.wait_pass().await;
    assert_eq!(running.problem(), None);
    assert_eq!(shop.count("orders where status = 'closed' and id <= 120").await, 120);
    assert_eq!(shop.count("orders where status = 'closed'").await, 120);
    let events = "select count(*), count(distinct key), count(distinct message_id) from duebox.outbox";
    let row = shop.db.query_one(events, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (120, 120, 120));
    let text = running.metrics.render().unwrap();
    assert!(text.contains("duebox_rule_closed_total{rule=\"unpaid\",by=\"sweep\"} 120"), "{text}");
    running.stop().await;
}

#[tokio::test]
async fn the_event_says_what_was_closed_when_and_by_whom() {
    let mut shop = Shop::new("sweep_event").await;
    shop.rule.from = vec!["pending".into(), "it's \"open\\".into()];
    shop.orders(7..=7, "it's \"open\\", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    let event = "select tier, key, type, routing_key, payload - 'due_at' - 'closed_at', \
        (payload ->> 'due_at')::timestamptz = o.due + interval '30 min', \
        (payload ->> 'closed_at')::timestamptz between now() - interval '30 s' and now() \
        from duebox.outbox, orders o";
    let row = shop.db.query_one(event, &[]).await.unwrap();
    let texts: Vec<Option<String>> = (0..4).map(|column| row.get(column)).collect();
    assert_eq!(texts, [Some("now".into()), Some("7".into()), Some("order.closed".into()), None]);
    let payload = serde_json::json!(
        {"id": 7, "rule": "unpaid", "from": "it's \"open\\", "to": "closed", "by": "sweep"}
    );
    assert_eq!(row.get::<_, serde_json::Value>(4), payload);
    assert!(row.get::<_, bool>(5) && row.get::<_, bool>(6), "due_at and closed_at");
}

#[tokio::test]
async fn an_order_that_cannot_be_closed_is_named_and_the_others_are_closed() {
    let shop = Shop::new("sweep_poison").await;
    let poison = "create function refuse() returns trigger language plpgsql as $$ begin \
        if new.id in (3, 60) then raise exception 'stock of order % is negative', new.id; end if; return new; end $$; \
        create trigger refuse before update on orders for each row execute function refuse()";
    shop.db.batch_execute(poison).await.unwrap();
    shop.orders(1..=90, "pending", LONG_AGO).await;
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.contains("2 order(s)") && problem.contains("stock of order 3 is negative"), "{problem}");
    assert_eq!(shop.count("orders where status = 'closed'").await, 88);
    assert_eq!(shop.db.count("true").await, 88);
    assert_eq!((shop.status(3).await, shop.status(60).await), ("pending".into(), "pending".into()));
}

#[tokio::test]
async fn after_a_pass_that_could_not_close_an_order_the_next_comes_in_time() {
    let mut shop = Shop::new("sweep_goes_on").await;
    shop.rule.every = std::time::Duration::from_millis(300);
    let poison = "create function refuse() returns trigger language plpgsql as $$ begin \
        if new.id = 1 then raise exception 'no'; end if; return new; end $$; \
        create trigger refuse before update on orders for each row execute function refuse()";
    shop.db.batch_execute(poison).await.unwrap();
    let running = shop.sweep();
    for id in 1..=4 {
        shop.orders(id..=id, "pending", LONG_AGO).await;
        wait_until(secs(10), async || shop.db.count("true").await == id - 1).await;
    }
    wait_until(secs(10), async || running.problem().is_some_and(|problem| problem.contains("first 1: "))).await;
    shop.db.batch_execute("drop trigger refuse on orders").await.unwrap();
    wait_until(secs(10), async || shop.db.count("true").await == 4 && running.problem().is_none()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_pause_of_the_sweep_or_of_the_rule_closes_nothing_until_it_ends() {
    let shop = Shop::new("sweep_pause").await;
    shop.orders(1..=3, "pending", LONG_AGO).await;
    for (pause, closed) in [("pause.sweep", 0), ("pause.rule.unpaid", 0), ("pause.rule.other", 3)] {
        shop.db.execute("insert into duebox.state (name) values ($1)", &[&pause]).await.unwrap();
        assert_eq!(shop.pass().await, None);
        assert_eq!(shop.count("orders where status = 'closed'").await, closed, "{pause}");
        shop.db.execute("delete from duebox.state where name = $1", &[&pause]).await.unwrap();
    }
}

#[tokio::test]
async fn triggers_of_the_shop_find_their_own_tables() {
    let shop = Shop::new("sweep_trigger").await;
    // Both names exist in the schema of duebox as well.
    let history = "create table state (id bigint, status text); create table outbox (id bigint); \
        create function keep() returns trigger language plpgsql as $$ begin \
        insert into state values (new.id, new.status); insert into outbox values (new.id); return null; end $$; \
        create constraint trigger late after update on orders deferrable initially deferred \
        for each row execute function keep(); \
        create trigger early after update on orders for each row execute function keep()";
    shop.db.batch_execute(history).await.unwrap();
    shop.orders(1..=2, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.count("public.state").await, shop.count("public.outbox").await), (4, 4));
    assert_eq!(shop.db.count("true").await, 2);
}

#[tokio::test]
async fn without_an_event_the_order_is_closed_and_nothing_is_written() {
    let mut shop = Shop::new("sweep_silent").await;
    shop.rule.event = None;
    shop.orders(1..=2, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.count("orders where status = 'closed'").await, 2);
    assert_eq!(shop.db.count("true").await, 0);
}

#[tokio::test]
async fn many_orders_due_at_one_instant_are_all_closed() {
    let shop = Shop::new("sweep_instant").await;
    shop.orders(1..=1_300, "pending", LONG_AGO).await;
    shop.db.batch_execute("update orders set due = '2020-01-01 00:00:00.123456Z'").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.count("orders where status = 'closed'").await, 1_300);
}

#[tokio::test]
async fn an_order_that_is_due_at_no_finite_time_is_left_alone() {
    let shop = Shop::new("sweep_infinite").await;
    shop.orders(1..=3, "pending", LONG_AGO).await;
    shop.db.batch_execute("update orders set due = '-infinity' where id = 1").await.unwrap();
    shop.db.batch_execute("update orders set due = 'infinity' where id = 2").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.count("orders where status = 'closed'").await, 1);
}

#[tokio::test]
async fn an_order_that_a_trigger_keeps_is_named_and_its_close_is_not_told() {
    let shop = Shop::new("sweep_kept").await;
    let keep = "create function keep() returns trigger language plpgsql as $$ begin \
        if new.id = 3 then new.status := 'paid'; end if; if new.id = 4 then return null; end if; return new; end $$; \
        create trigger keep before update on orders for each row execute function keep()";
    shop.db.batch_execute(keep).await.unwrap();
    shop.orders(1..=90, "pending", LONG_AGO).await;
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.contains("2 order(s)") && problem.contains("keeps the order open"), "{problem}");
    assert_eq!(shop.count("orders where status = 'closed'").await, 88);
    assert_eq!(shop.db.count("true").await, 88, "no event of an order that was kept");
}
