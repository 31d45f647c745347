//! Payments, closers and sweeps at the moment at which orders fall due: each order ends paid or closed, and never both.

use super::shop::Shop;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};
use futures_util::future::join_all;

/// `RACE_ORDERS` makes it another number; `benches/race.sh` runs ten thousand.
const ORDERS: i64 = 1_000;

/// The message of every other order comes early and is waited with, so that a closer is there at the moment itself; those
/// of every third are two, so that two closers look at it together.
const PLACE: &str = "with placed as (insert into orders select i, 'pending', now() + i * interval '8 ms' \
        from generate_series(1, $1::bigint) i returning id, due) \
    select duebox.enqueue('unpaid-2s', id::text, 'order.created', '{}', due + interval '2 s' - id % 2 * interval '0.3 s') \
        from placed, generate_series(0, (id % 3 = 0)::int)";

/// Eight closers and two sweeps, which take whatever is overdue when they come.
const CLOSERS: &str = "concurrency = 4\nprefetch = 1000";
const SWEEP: &str = "every = \"500ms\"\ngrace = \"0s\"";

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_paid_at_the_due_moment_under_eight_closers_and_two_sweeps_end_paid_or_closed_with_one_event() {
    let shop = Shop::new("closer_race").await;
    let orders = std::env::var("RACE_ORDERS").map_or(ORDERS, |text| text.parse().unwrap());
    shop.db.batch_execute("alter table orders add paid_at timestamptz").await.unwrap();
    let relays = [(); 2].map(|()| shop.launch_with(CLOSERS, "", SWEEP));
    for relay in &relays {
        relay.wait_log("the closer consumes queue 'due'", START);
    }
    shop.db.execute(PLACE, &[&orders]).await.unwrap();
    // Some a little before the orders are due, some after: a busy closer is late.
    let offsets = [(1, -0.05), (2, -0.01), (3, 0.03), (4, 0.2)];
    let paid = join_all(offsets.map(|(first, offset)| shop.pay_around_due((first..=orders).step_by(6), offset))).await;
    let paid: u64 = paid.iter().sum();
    wait_until(secs(120), async || shop.count("orders where status = 'pending'").await == 0).await;
    shop.wait_acked().await;
    let closed = shop.closed().await;
    let paid = i64::try_from(paid).unwrap();
    let swept = shop.db.count("payload ->> 'by' = 'sweep'").await;
    eprintln!("{paid} paid, {closed} closed, {swept} of them by the sweeps");
    assert_eq!(shop.count("orders where status = 'closed' and paid_at is not null").await, 0);
    assert_eq!(paid + closed, orders);
    let fair = orders / 20;
    assert!(paid > fair && closed > fair, "{paid} paid, {closed} closed, {swept} by the sweeps");
    shop.events_fit().await;
    // All of them twice more: nothing changes.
    shop.deliver_all(1..=orders).await;
    shop.deliver_all(1..=orders).await;
    wait_until(secs(300), async || shop.unacked() == 0).await;
    assert_eq!((shop.closed().await, shop.db.count("parked_at is not null").await), (closed, 0));
    shop.events_fit().await;
    drop(relays);
}

impl Shop {
    /// Pays each of these orders about `offset` seconds after it is due; how many could be.
    async fn pay_around_due(&self, ids: impl Iterator<Item = i64>, offset: f64) -> u64 {
        let payment = self.between.rig.db().await;
        let mut paid = 0;
        for id in ids {
            let wait = "select pg_sleep(greatest(0, extract(epoch from due + interval '2 s' - clock_timestamp()) \
                + $2::float8 + random() * 0.04)) from orders where id = $1";
            payment.execute(wait, &[&id, &offset]).await.unwrap();
            let update = "update orders set status = 'paid', paid_at = now() where id = $1 and status = 'pending'";
            paid += payment.execute(update, &[&id]).await.unwrap();
        }
        paid
    }
}
