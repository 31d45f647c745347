//! Sweep, closer and payment in pairs, each in both orders, at a barrier.

use super::one::try_by;
use super::race::waiting;
use super::shop::Shop;
use crate::support::db::Db;
use crate::support::wait::{secs, wait_until};
use duebox::rule::{Closing, Kept};
use std::pin::pin;
use std::time::Duration;

const LONG_AGO: f64 = 2_000.0;

/// Payments are in a table of their own, and the guard reads it. While an order is looked for, and nothing is locked, the
/// guard waits for advisory lock 1; its statement has seen all that it will see by then.
const PAYMENTS: &str = "create table payments (order_id bigint); \
    create function gate() returns boolean language plpgsql as $$ begin \
    if current_setting('lock_timeout') = '0' then perform pg_advisory_xact_lock_shared(1); end if; \
    return true; end $$";
const GUARD: &str = "gate() and not exists (select from payments p where p.order_id = o.id)";

/// Closing waits in its UPDATE for advisory lock 2.
const WAIT_IN_CLOSE: &str = "create function wait() returns trigger language plpgsql as $$ begin \
    perform pg_advisory_xact_lock_shared(2); return new; end $$; \
    create trigger wait before update on orders for each row execute function wait()";

impl Shop {
    async fn with_gate(name: &str) -> Self {
        let mut shop = Self::new(name).await;
        shop.db.batch_execute(PAYMENTS).await.unwrap();
        shop.rule.guard = Some(GUARD.into());
        shop.rule.every = Duration::from_millis(100);
        shop.orders(1..=1, "pending", LONG_AGO).await;
        shop
    }

    /// A session that holds an advisory lock.
    async fn barrier(&self, lock: i32) -> Db {
        let barrier = self.rig.db().await;
        barrier.batch_execute(&format!("select pg_advisory_lock({lock})")).await.unwrap();
        barrier
    }
}

#[tokio::test]
async fn a_payment_row_that_commits_after_the_order_was_found_is_seen_by_the_close() {
    let shop = Shop::with_gate("pair_found").await;
    let barrier = shop.barrier(1).await;
    let running = shop.sweep();
    wait_until(secs(10), async || waiting(&shop.db, "advisory").await).await;
    let pay = "begin; select from orders where id = 1 for update; insert into payments values (1); commit";
    shop.db.batch_execute(pay).await.unwrap();
    drop(barrier);
    let guarded = "duebox_rule_refused_total{rule=\"unpaid\",by=\"sweep\",reason=\"guard\"} 1";
    wait_until(secs(10), async || running.metrics.render().unwrap().contains(guarded)).await;
    shop.wait_pass().await;
    running.stop().await;
    assert_eq!((shop.status(1).await, shop.db.count("true").await), ("pending".into(), 0));
}

#[tokio::test]
async fn a_payment_that_only_locks_the_order_and_pays_elsewhere_is_waited_for_by_the_closer() {
    let shop = Shop::with_gate("pair_locked").await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin; select from orders where id = 1 for update").await.unwrap();
    let pay = async {
        wait_until(secs(10), async || waiting(&shop.db, "transactionid").await).await;
        payment.batch_execute("insert into payments values (1); commit").await.unwrap();
    };
    let (kept, ()) = tokio::join!(shop.kept("1"), pay);
    assert_eq!(kept, Kept::Guarded);
    assert_eq!((shop.status(1).await, shop.db.count("true").await), ("pending".into(), 0));
}

#[tokio::test]
async fn a_payment_that_only_locks_the_order_is_skipped_by_the_sweep() {
    let shop = Shop::with_gate("pair_skipped").await;
    shop.orders(2..=2, "pending", LONG_AGO).await;
    let payment = shop.rig.db().await;
    payment.batch_execute("begin; select from orders where id = 1 for update").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await.as_str(), shop.status(2).await.as_str()), ("pending", "closed"));
    payment.batch_execute("insert into payments values (1); commit").await.unwrap();
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.status(1).await, "pending");
}

#[tokio::test]
async fn a_payment_that_locks_the_order_after_its_close_began_finds_it_closed() {
    let shop = Shop::with_gate("pair_close_first").await;
    shop.db.batch_execute(WAIT_IN_CLOSE).await.unwrap();
    for id in ROUNDS {
        if Box::pin(shop.paid_while_closed(id)).await {
            return;
        }
    }
    panic!("no close was through within its bounds");
}

/// A close has bounds, which a slow machine may miss. Then it has changed nothing, and the next order has its turn.
const ROUNDS: std::ops::RangeInclusive<i64> = 11..=40;

impl Shop {
    /// Locks an order for a payment while the closer closes it; whether that was through.
    async fn paid_while_closed(&self, id: i64) -> bool {
        self.orders(id..=id, "pending", LONG_AGO).await;
        let (barrier, payment, name) = (self.barrier(2).await, self.rig.db().await, id.to_string());
        let mut close = pin!(self.try_one(&name));
        tokio::select! {
            closed = &mut close => {
                assert!(!closed, "past the barrier");
                return false;
            }
            () = wait_until(secs(10), async || waiting(&self.db, "advisory").await) => {}
        }
        let locking = format!("set lock_timeout = '1s'; select from orders where id = {id} for update");
        let release = async {
            tokio::select! {
                closed = &mut close => closed,
                () = wait_until(secs(10), async || waiting(&self.db, "transactionid").await) => {
                    drop(barrier);
                    close.await
                }
            }
        };
        let (locked, closed) = tokio::join!(payment.batch_execute(&locking), release);
        locked.unwrap();
        let (status, events) = (self.status(id).await, self.db.count(&format!("key = '{id}'")).await);
        assert_eq!((status.as_str(), events), if closed { ("closed", 1) } else { ("pending", 0) });
        closed
    }

    /// Who has closed an order; there is one event.
    async fn closed_by(&self, id: i64) -> String {
        let by = format!("select payload ->> 'by' from duebox.outbox where key = '{id}'");
        self.db.query_one(&by, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn of_sweep_and_closer_whoever_comes_second_finds_the_order_closed() {
    let shop = Shop::with_gate("pair_sweep_first").await;
    shop.db.batch_execute(WAIT_IN_CLOSE).await.unwrap();
    for id in ROUNDS {
        if Box::pin(shop.closed_while_swept(id)).await {
            return;
        }
    }
    panic!("no close was through within its bounds");
}

impl Shop {
    /// Closes an order by the closer while the sweep closes it; whether one of them was through.
    async fn closed_while_swept(&self, id: i64) -> bool {
        self.orders(id..=id, "pending", LONG_AGO).await;
        let (barrier, name, closer) = (self.barrier(2).await, id.to_string(), self.ready().await);
        self.db.execute("delete from duebox.state where name = 'sweep.unpaid'", &[]).await.unwrap();
        let running = self.sweep();
        wait_until(secs(10), async || waiting(&self.db, "advisory").await).await;
        let mut close = pin!(try_by(&closer, &name));
        let by_closer = tokio::select! {
            by_closer = &mut close => by_closer,
            () = wait_until(secs(10), async || waiting(&self.db, "transactionid").await) => {
                drop(barrier);
                close.await
            }
        };
        self.wait_pass().await;
        running.stop().await;
        if self.status(id).await != "closed" {
            return false;
        }
        assert_eq!(self.kept(&name).await, Kept::Status("closed".into()));
        assert_eq!(self.closed_by(id).await, if by_closer { "closer" } else { "sweep" });
        true
    }
}

#[tokio::test]
async fn the_sweep_skips_what_the_closer_has() {
    let shop = Shop::with_gate("pair_closer_first").await;
    let wait = WAIT_IN_CLOSE.replace("perform", "if new.id % 2 = 1 then perform").replace("(2);", "(2); end if;");
    shop.db.batch_execute(&wait).await.unwrap();
    for odd in ROUNDS.step_by(2) {
        if Box::pin(shop.swept_while_closed(odd)).await {
            return;
        }
    }
    panic!("no close was through within its bounds");
}

impl Shop {
    /// Sweeps over two orders while the closer closes the first; whether that was through.
    async fn swept_while_closed(&self, odd: i64) -> bool {
        self.orders(odd..=odd + 1, "pending", LONG_AGO).await;
        let (barrier, name) = (self.barrier(2).await, odd.to_string());
        let mut close = pin!(self.try_one(&name));
        tokio::select! {
            closed = &mut close => {
                assert!(!closed, "past the barrier");
                return false;
            }
            () = wait_until(secs(10), async || waiting(&self.db, "advisory").await) => {}
        }
        let sweep = async {
            let running = self.sweep();
            wait_until(secs(10), async || self.status(odd + 1).await == "closed").await;
            drop(barrier);
            running
        };
        let (by_closer, running) = tokio::join!(close, sweep);
        wait_until(secs(10), async || self.status(odd).await == "closed").await;
        self.wait_pass().await;
        running.stop().await;
        assert_eq!(self.closed_by(odd).await, if by_closer { "closer" } else { "sweep" });
        by_closer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn among_sweeps_closers_and_payments_every_order_ends_paid_or_closed_with_one_event() {
    const ORDERS: i64 = 450;
    let mut shop = Shop::new("pair_storm").await;
    let isolation = format!("alter role {} set default_transaction_isolation = 'serializable'", shop.rig.name());
    shop.rig.postgres().sql("postgres", &isolation);
    shop.rule.every = Duration::from_millis(50);
    shop.orders(1..=ORDERS, "pending", LONG_AGO).await;
    let db = shop.connect();
    let orders = duebox::rule::prepare(&db, "unpaid", &shop.rule).await.unwrap().0.unwrap();
    let close = async |first: i64| {
        let mut closed = 0;
        for id in (0..ORDERS / 3).map(|n| 3 * n + first) {
            // Twice, as a redelivered message would; and again when the machine was too slow for the bounds of a close.
            let (mut calls, mut tries) = (0, 0);
            while calls < 2 {
                match duebox::rule::one(&db, &orders, (&id.to_string(), duebox::rule::PATIENCE), "closer").await {
                    again @ (Ok(Closing::Kept(Kept::Locked | Kept::Slow)) | Err(_)) => {
                        tries += 1;
                        assert!(tries < 20, "{again:?}");
                    }
                    Ok(closing) => {
                        closed += i64::from(matches!(closing, Closing::Closed(_)));
                        calls += 1;
                    }
                }
            }
        }
        closed
    };
    let pay = async |first: i64| {
        let payment = shop.rig.db().await;
        payment
            .batch_execute("set default_transaction_isolation = 'read committed'; set lock_timeout = '1s'")
            .await
            .unwrap();
        let mut paid = 0;
        for id in (0..ORDERS / 3).rev().map(|n| 3 * n + first) {
            let pay = "update orders set status = 'paid' where id = $1 and status = 'pending'";
            paid += payment.execute(pay, &[&id]).await.unwrap();
        }
        i64::try_from(paid).unwrap()
    };
    let sweeps = [shop.sweep(), shop.sweep()];
    let (one, two, paid) = tokio::join!(close(1), close(2), async { pay(1).await + pay(2).await + pay(3).await });
    wait_until(secs(30), async || shop.count("orders where status = 'pending'").await == 0).await;
    for sweep in sweeps {
        assert_eq!(sweep.stop().await, None);
    }
    let closed = shop.count("orders where status = 'closed'").await;
    assert_eq!((closed + paid, shop.db.count("true").await), (ORDERS, closed));
    let by_closer = shop.count("duebox.outbox where payload ->> 'by' = 'closer'").await;
    // The answer to a commit may be lost, never the commit that was told.
    assert!(by_closer >= one + two && one + two > 0, "{by_closer} by closers, who know of {one} and {two}");
    let told = "orders o join duebox.outbox e on e.key = o.id::text where o.status = 'closed'";
    assert_eq!(shop.count(told).await, closed);
}
