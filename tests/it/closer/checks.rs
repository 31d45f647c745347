//! A rule with checks looks at an order several times before it is overdue, and no more once it has left `from`.

use super::shop::{Shop, refused};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_looked_at_again_and_again_until_it_is_paid_or_overdue() {
    let shop = Shop::new("closer_checks").await;
    let daemon = shop.launch("", "after = \"14s\"\nchecks = [\"2s\", \"8s\", \"14s\"]\n");
    daemon.wait_log("the closer consumes queue 'due'", secs(30));
    let place = "with placed as (insert into orders values ($1, 'pending', now()) returning id) \
        select duebox.enqueue('unpaid-2s', id::text, 'order.created', '{}') from placed";
    for id in 1..=2_i64 {
        shop.db.execute(place, &[&id]).await.unwrap();
    }
    // The first look leaves a message for the second, due at that check and not when the order is overdue.
    let second = "exists (select from orders o where o.id::text = key and due_at = o.due + interval '8 s')";
    wait_until(secs(20), async || shop.db.count(second).await == 2).await;
    shop.db.batch_execute("update orders set status = 'paid' where id = 2").await.unwrap();
    wait_until(secs(30), async || refused(&daemon, "status") == 1.0).await;
    wait_until(secs(40), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    assert_eq!(shop.status(2).await, "paid");
    shop.events_fit().await;
    let early = "type = 'order.closed' and (payload ->> 'closed_at')::timestamptz \
        < (select o.due + interval '14 s' from orders o where o.id::text = key)";
    assert_eq!(shop.db.count(early).await, 0);
    // The order's own message, the look in between, and the last: order 2 had no third.
    let messages = async |id| shop.db.count(&format!("key = '{id}' and type is distinct from 'order.closed'")).await;
    assert_eq!((messages(1).await, messages(2).await), (3, 2));
}
