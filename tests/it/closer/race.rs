//! Payments, closers and sweeps at the moment at which orders fall due: each order ends paid or closed, and never both.

use super::shop::Shop;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

const ORDERS: i64 = 2_000;
const PLACE: &str = "with placed as (insert into orders select i, 'pending', now() + i * interval '2 ms' \
        from generate_series(1, $1::bigint) i returning id, due) \
    select duebox.enqueue('unpaid-2s', id::text, 'order.created', '{}', due + interval '2 s') from placed";

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_orders_with_payments_at_the_due_moment_end_paid_or_closed_with_one_event_each() {
    let shop = Shop::new("closer_race").await;
    shop.db.batch_execute("alter table orders add paid_at timestamptz").await.unwrap();
    let launch = || shop.launch_with("concurrency = 4", "", "every = \"100ms\"\ngrace = \"0s\"");
    let relays = [launch(), launch()];
    for relay in &relays {
        relay.wait_log("the closer consumes queue 'due'", START);
    }
    shop.db.execute(PLACE, &[&ORDERS]).await.unwrap();
    let pay = async |first: i64| {
        let payment = shop.between.rig.db().await;
        let mut paid = 0;
        for id in (first..=ORDERS).step_by(3) {
            // A tenth of a second before to a tenth after the order is due, each at its own moment.
            let wait = "select pg_sleep(greatest(0, extract(epoch from due + interval '2 s' - clock_timestamp()) \
                + (random() - 0.5) * 0.2)) from orders where id = $1";
            payment.execute(wait, &[&id]).await.unwrap();
            let update = "update orders set status = 'paid', paid_at = now() where id = $1 and status = 'pending'";
            paid += payment.execute(update, &[&id]).await.unwrap();
        }
        paid
    };
    let (one, two) = tokio::join!(pay(1), pay(2));
    wait_until(secs(60), async || shop.count("orders where status = 'pending'").await == 0).await;
    shop.wait_acked().await;
    let closed = shop.closed().await;
    let paid = i64::try_from(one + two).unwrap();
    let swept = shop.db.count("payload ->> 'by' = 'sweep'").await;
    eprintln!("{paid} paid, {closed} closed, {swept} of them by the sweeps");
    assert_eq!(shop.count("orders where status = 'closed' and paid_at is not null").await, 0);
    assert_eq!(paid + closed, ORDERS);
    assert!(paid > 100 && closed > ORDERS / 3, "{paid} paid, {closed} closed");
    shop.events_fit().await;
    // All of them again: nothing changes.
    shop.deliver_all(1..=ORDERS).await;
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, shop.db.count("parked_at is not null").await), (closed, 0));
    shop.events_fit().await;
    drop(relays);
}
