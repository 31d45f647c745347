//! Payments, closers and sweeps at the moment at which orders fall due: each order ends paid or closed, and never both.

use super::shop::Shop;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

const ORDERS: i64 = 2_000;
const PLACE: &str = "with placed as (insert into orders select i, 'pending', now() + i * interval '8 ms' \
        from generate_series(1, $1::bigint) i returning id, due) \
    select duebox.enqueue('unpaid-2s', id::text, 'order.created', '{}', due + interval '2 s') from placed";

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_orders_with_payments_at_the_due_moment_end_paid_or_closed_with_one_event_each() {
    let shop = Shop::new("closer_race").await;
    shop.db.batch_execute("alter table orders add paid_at timestamptz").await.unwrap();
    let launch = || shop.launch_with("concurrency = 4", "", "every = \"500ms\"\ngrace = \"300ms\"");
    let relays = [launch(), launch()];
    for relay in &relays {
        relay.wait_log("the closer consumes queue 'due'", START);
    }
    shop.db.execute(PLACE, &[&ORDERS]).await.unwrap();
    let pay = async |(first, offset): (i64, f64)| {
        let payment = shop.between.rig.db().await;
        let mut paid = 0;
        for id in (first..=ORDERS).step_by(6) {
            let wait = "select pg_sleep(greatest(0, extract(epoch from due + interval '2 s' - clock_timestamp()) \
                + $2::float8 + random() * 0.04)) from orders where id = $1";
            payment.execute(wait, &[&id, &offset]).await.unwrap();
            let update = "update orders set status = 'paid', paid_at = now() where id = $1 and status = 'pending'";
            paid += payment.execute(update, &[&id]).await.unwrap();
        }
        paid
    };
    // Some a little before the orders are due, some after: a busy closer is late.
    let offsets = [(1, -0.05), (2, -0.01), (3, 0.03), (4, 0.2)];
    let paid: u64 = futures_util::future::join_all(offsets.map(pay)).await.iter().sum();
    wait_until(secs(60), async || shop.count("orders where status = 'pending'").await == 0).await;
    shop.wait_acked().await;
    let closed = shop.closed().await;
    let paid = i64::try_from(paid).unwrap();
    let swept = shop.db.count("payload ->> 'by' = 'sweep'").await;
    eprintln!("{paid} paid, {closed} closed, {swept} of them by the sweeps");
    assert_eq!(shop.count("orders where status = 'closed' and paid_at is not null").await, 0);
    assert_eq!(paid + closed, ORDERS);
    assert!(paid > 100 && closed > 100, "{paid} paid, {closed} closed, {swept} by the sweeps");
    shop.events_fit().await;
    // All of them again: nothing changes.
    shop.deliver_all(1..=ORDERS).await;
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, shop.db.count("parked_at is not null").await), (closed, 0));
    shop.events_fit().await;
    drop(relays);
}
