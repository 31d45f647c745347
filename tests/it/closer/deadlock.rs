//! Payments that lock in the opposite order: deadlocks are nobody's fault, and lose nothing.

use super::shop::{LONG_AGO, Shop};
use crate::support::wait::{secs, wait_until};
use tokio_postgres::error::SqlState;

const ORDERS: i64 = 40;

/// Closing locks the order, then its item; it has time to meet somebody there.
const STOCK: &str = "create table stock (item bigint primary key, free bigint not null); insert into stock values (1, 0); \
    create function give_back() returns trigger language plpgsql security definer as $$ begin \
    if new.status = 'closed' then perform pg_sleep(0.01); \
    update public.stock set free = free + 1 where item = 1; end if; return new; end $$; \
    create trigger give_back before update on orders for each row execute function give_back()";

/// Paying locks the item, then the order: the first that is open, which a closer is likely to have.
const TAKE_ITEM: &str = "begin; update stock set free = free where item = 1; select pg_sleep(0.01)";
const PAY: &str = "update orders set status = 'paid' where status = 'pending' \
    and id = (select min(id) from orders where status = 'pending')";

impl Shop {
    /// Pays until no order is open, again where a deadlock came in between; how many, and how many deadlocks.
    async fn pay_the_other_way(&self) -> (i64, usize) {
        let payment = self.between.rig.db().await;
        payment.batch_execute("set lock_timeout = '1s'").await.unwrap();
        let (mut paid, mut deadlocks) = (0, 0);
        while self.count("orders where status = 'pending'").await > 0 {
            payment.batch_execute(TAKE_ITEM).await.unwrap();
            match payment.execute(PAY, &[]).await {
                Ok(rows) => {
                    payment.batch_execute("commit").await.unwrap();
                    paid += i64::try_from(rows).unwrap();
                }
                Err(error) => {
                    assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED), "no payment waits a second");
                    payment.batch_execute("rollback").await.unwrap();
                    deadlocks += 1;
                }
            }
        }
        (paid, deadlocks)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_that_lock_the_other_way_round_deadlock_and_every_order_ends_paid_or_closed() {
    let shop = Shop::new("closer_deadlock").await;
    shop.db.batch_execute(STOCK).await.unwrap();
    // Whoever looks first is the victim: mostly the relay, which begins to wait first as well.
    for (role, timeout) in [(shop.between.role(), "20ms"), (shop.between.rig.name(), "100ms")] {
        let set = format!("alter role {role} set deadlock_timeout = '{timeout}'");
        shop.between.rig.postgres().sql("postgres", &set);
    }
    shop.orders(1..=ORDERS, "pending", LONG_AGO).await;
    shop.deliver_all(1..=ORDERS).await;
    let daemon = shop.launch_with("max_attempts = 1", "", "every = \"100ms\"\ngrace = \"0s\"");
    wait_until(secs(40), async || shop.closed().await > 0).await;
    let (paid, deadlocks) = shop.pay_the_other_way().await;
    shop.wait_acked().await;
    let closed = shop.closed().await;
    eprintln!("{paid} paid, {closed} closed; payments had {deadlocks} deadlocks");
    assert_eq!(paid + closed, ORDERS);
    assert_eq!(shop.count(&format!("stock where free = {closed}")).await, 1, "given back once for each");
    shop.events_fit().await;
    // Whoever was the victim: the server counts both sides, up to 10 s late.
    let counted = "pg_stat_database where datname = current_database() and deadlocks > 0";
    wait_until(secs(20), async || shop.count(counted).await == 1).await;
    assert_eq!(shop.db.count("parked_at is not null").await, 0);
    let complaints = |line: &&str| line.contains(" WARN ") && line.contains("order=");
    assert_eq!(daemon.log().lines().find(complaints), None, "no business of the log's");
}
