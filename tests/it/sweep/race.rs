//! A paid order is never closed, and an order is never closed twice, whoever comes first.

use super::shop::Shop;
use crate::support::db::Db;
use crate::support::wait::{secs, wait_until};
use std::time::{Duration, Instant};

const LONG_AGO: f64 = 2_000.0;
const PAY: &str = "update orders set status = 'paid' where id = $1 and status = 'pending'";

/// Closing waits in its UPDATE for advisory lock 1.
const WAIT_IN_CLOSE: &str = "create function wait() returns trigger language plpgsql as $$ begin \
    if new.status = 'closed' then perform pg_advisory_xact_lock_shared(1); end if; return new; end $$; \
    create trigger wait before update on orders for each row execute function wait()";

#[tokio::test]
async fn an_order_whose_payment_is_not_yet_committed_is_skipped_and_stays_paid() {
    let shop = Shop::new("race_payment_first").await;
    shop.orders(1..=2, "pending", LONG_AGO).await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin").await.unwrap();
    payment.execute(PAY, &[&1_i64]).await.unwrap();
    let started = Instant::now();
    assert_eq!(shop.pass().await, None);
    assert!(started.elapsed() < secs(10), "waited for the payment");
    assert_eq!((shop.status(1).await, shop.status(2).await), ("pending".into(), "closed".into()));
    payment.batch_execute("commit").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await, shop.db.count("key = '1'").await), ("paid".into(), 0));
}

/// The foreign key's lock on the order is the weakest there is, and the payment row is not yet to be seen.
#[tokio::test]
async fn an_order_with_a_payment_row_being_inserted_is_skipped() {
    let shop = Shop::new("race_payment_row").await;
    shop.db.batch_execute("create table payments (order_id bigint references orders)").await.unwrap();
    shop.orders(1..=2, "pending", LONG_AGO).await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin; insert into payments values (1)").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await, shop.status(2).await), ("pending".into(), "closed".into()));
    payment.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn a_payment_never_waits_longer_than_a_second_for_a_close_that_hangs() {
    let shop = Shop::new("race_hanging_close").await;
    shop.db.batch_execute(WAIT_IN_CLOSE).await.unwrap();
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let barrier = shop.rig.db().await;
    barrier.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    let running = shop.sweep();
    wait_until(secs(10), async || waiting(&shop.db, "advisory").await).await;
    // Its own clock would count what a busy machine takes from it.
    shop.db.batch_execute("set lock_timeout = '1s'").await.unwrap();
    assert_eq!(shop.db.execute(PAY, &[&1_i64]).await.expect("the payment does not wait for a second"), 1);
    shop.wait_pass().await;
    barrier.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
    running.stop().await;
    assert_eq!((shop.status(1).await, shop.db.count("true").await), ("paid".into(), 0));
}

#[tokio::test]
async fn under_payments_and_two_sweeps_at_once_every_order_ends_paid_or_closed_with_one_event() {
    let mut shop = Shop::new("race_storm").await;
    // A role default that would make every one of these a serialization failure if it were used.
    let isolation = format!("alter role {} set default_transaction_isolation = 'serializable'", shop.rig.name());
    shop.rig.postgres().sql("postgres", &isolation);
    shop.rule.every = Duration::from_millis(100);
    shop.orders(1..=3_000, "pending", LONG_AGO).await;
    let sweeps = [shop.sweep(), shop.sweep()];
    let pay = async |first: i64| {
        let payment = shop.rig.db().await;
        payment.batch_execute("set default_transaction_isolation = 'read committed'").await.unwrap();
        let mut paid = 0;
        // From the newest, towards the sweeps.
        for id in (0..1_000).rev().map(|n| 3 * n + first) {
            paid += payment.execute(PAY, &[&id]).await.unwrap();
        }
        paid
    };
    let paid: u64 = {
        let (one, two) = tokio::join!(pay(1), pay(2));
        one + two
    };
    wait_until(secs(30), async || shop.count("orders where status = 'pending'").await == 0).await;
    for sweep in sweeps {
        assert_eq!(sweep.stop().await, None);
    }
    let closed = shop.count("orders where status = 'closed'").await;
    assert_eq!(closed + i64::try_from(paid).unwrap(), 3_000);
    assert!(closed >= 1_000, "{closed}");
    assert_eq!(
        shop.count("orders o join duebox.outbox e on e.key = o.id::text where o.status = 'closed'").await,
        closed
    );
    assert_eq!(shop.db.count("true").await, closed);
}

/// Whether a session of this database waits for such a lock.
pub(super) async fn waiting(db: &Db, event: &str) -> bool {
    const WAITING: &str = "select count(*) from pg_stat_activity \
        where datname = current_database() and wait_event_type = 'Lock' and wait_event = $1";
    db.query_one(WAITING, &[&event]).await.unwrap().get::<_, i64>(0) > 0
}
