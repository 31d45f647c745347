//! An order whose message falls due is closed then, once; any other is left as it is, and the reason told.

use super::shop::{AFTER, LONG_AGO, Shop, refused};
use crate::support::consumer::Consumer;
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_unpaid_order_is_closed_when_it_is_due_and_a_paid_one_is_kept() {
    let shop = Shop::new("closer_closes").await;
    let mut daemon = shop.daemon("");
    let place = "with placed as (insert into orders values ($1, 'pending', now()) returning id) \
        select duebox.enqueue('unpaid-2s', id::text, 'order.created', '{}') from placed";
    for id in 1..=3_i64 {
        shop.db.execute(place, &[&id]).await.unwrap();
    }
    shop.db.batch_execute("update orders set status = 'paid' where id = 2").await.unwrap();
    wait_until(secs(20), async || shop.closed().await == 2).await;
    shop.wait_acked().await;
    assert_eq!(shop.status(2).await, "paid");
    shop.events_fit().await;
    let late = "select max(extract(epoch from (payload ->> 'closed_at')::timestamptz \
            - (payload ->> 'due_at')::timestamptz))::float8, \
        min(extract(epoch from (payload ->> 'closed_at')::timestamptz - (payload ->> 'due_at')::timestamptz))::float8, \
        min(payload ->> 'by') from duebox.outbox where type = 'order.closed'";
    let row = shop.db.query_one(late, &[]).await.unwrap();
    let (most, least, by): (f64, f64, &str) = (row.get(0), row.get(1), row.get(2));
    assert!(least >= 0.0 && most < 10.0 && by == "closer", "{least} to {most} s late, by {by}");
    eprintln!("closed {least} to {most} s after {AFTER} s");
    // The event itself arrives.
    let mut events = Consumer::new(&shop.between.rig.amqp_url(), "events").await;
    assert_eq!(events.next(secs(10)).await.unwrap().kind, "order.closed");
    let line = daemon.wait_log("order 1 closed", secs(5));
    for word in ["order=\"1\"", "rule=\"unpaid\"", "from=\"pending\"", "to=\"closed\"", "by=\"closer\"", "message_id="]
    {
        assert!(line.contains(word), "{word} in {line}");
    }
    let line = daemon.wait_log("order 2 is kept: its status is paid", secs(5));
    for word in ["order=\"2\"", "rule=\"unpaid\"", "from=\"paid\"", "by=\"closer\"", "message_id="] {
        assert!(line.contains(word), "{word} in {line}");
    }
    assert_eq!(daemon.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"closer\"}"), Some(2.0));
    assert_eq!(refused(&daemon, "status"), 1.0);
    // Who consumes is counted anew when the closer begins, and its queue is at no time called unconsumed.
    assert_eq!(daemon.metric("duebox_target_consumers{tier=\"unpaid-2s\"}"), Some(1.0));
    assert!(!daemon.log().contains("consumers of tier unpaid-2s"), "{}", daemon.log());
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(15)), 0, "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn late_and_double_messages_and_unknown_orders_change_nothing() {
    let shop = Shop::new("closer_twice").await;
    let daemon = shop.daemon("");
    shop.orders(1..=20, "pending", LONG_AGO).await;
    shop.orders(21..=25, "paid", LONG_AGO).await;
    for _ in 0..3 {
        shop.deliver_all(1..=30).await;
    }
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, shop.count("orders where status = 'paid'").await), (20, 5));
    shop.events_fit().await;
    assert_eq!((refused(&daemon, "status"), refused(&daemon, "unknown")), (40.0 + 15.0, 15.0));
    assert_eq!(daemon.metric("duebox_rule_closed_total{rule=\"unpaid\",by=\"closer\"}"), Some(20.0));
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_application_is_read_by_its_queue_and_the_pointer() {
    let shop = Shop::new("closer_pointer").await;
    let daemon = shop.launch("", "id_pointer = \"/order/id\"\n");
    daemon.wait_log("the closer consumes queue 'due'", secs(30));
    shop.orders(1..=3, "pending", LONG_AGO).await;
    for body in [r#"{"order": {"id": 1}}"#, r#"{"order": {"id": "2"}}"#] {
        shop.publish(body.as_bytes(), lapin::BasicProperties::default()).await;
    }
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, shop.status(3).await), (2, "pending".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_closed_at_the_rate_that_is_set() {
    let shop = Shop::new("closer_rate").await;
    shop.orders(1..=8, "pending", LONG_AGO).await;
    shop.deliver_all(1..=8).await;
    let daemon = shop.daemon("rate = 4");
    wait_until(secs(30), async || shop.closed().await == 8).await;
    let span = "select extract(epoch from max(created_at) - min(created_at))::float8 from duebox.outbox";
    let span: f64 = shop.db.query_one(span, &[]).await.unwrap().get(0);
    // Seven gaps of a quarter of a second, but for the time that the first took itself.
    assert!(span > 1.2, "{span}");
    drop(daemon);
}
