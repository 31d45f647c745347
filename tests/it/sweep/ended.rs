//! An order whose close ends its session, or takes for ever at the commit, is the only one that stays open.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};
use std::time::{Duration, Instant};

const LONG_AGO: f64 = 2_000.0;

#[tokio::test]
async fn an_order_whose_trigger_ends_the_session_is_named_and_keeps_no_other_open() {
    let shop = Shop::new("ended_session").await;
    let fatal = "create function fatal() returns trigger language plpgsql as $$ begin \
        if new.id = 3 then perform pg_terminate_backend(pg_backend_pid()); end if; return new; end $$; \
        create trigger fatal before update on orders for each row execute function fatal()";
    shop.db.batch_execute(fatal).await.unwrap();
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let problem = shop.pass().await.expect("a problem");
    let said = "1 order(s) could not be closed, 19 other(s) were; first 3: the database ended the session in which it was \
        being closed, and answers others (";
    assert!(problem.starts_with(said), "{problem}");
    assert_eq!((shop.count("orders where status = 'closed'").await, shop.db.count("true").await), (19, 19));
}

/// Postgres has no bound for what runs at the commit; a payment must not wait for it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_deferred_trigger_is_slow_is_named_and_no_payment_waits_for_its_neighbours() {
    let shop = Shop::new("ended_deferred").await;
    let slow = "create function slow() returns trigger language plpgsql as $$ begin \
        if new.id = 3 and new.status = 'closed' then perform pg_sleep(8); end if; return new; end $$; \
        create constraint trigger slow after update on orders deferrable initially deferred \
        for each row execute function slow()";
    shop.db.batch_execute(slow).await.unwrap();
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let payer = shop.rig.db().await;
    let pass = shop.pass();
    let pay = async {
        let (mut slowest, mut paid) = (Duration::ZERO, 0);
        // Until the pass is through with the others.
        while shop.count("orders where status = 'pending' and id not in (3, 4)").await > 0 {
            let begun = Instant::now();
            paid += payer.execute("update orders set status = status where id = 4", &[]).await.unwrap();
            slowest = slowest.max(begun.elapsed());
        }
        (slowest, paid)
    };
    let (problem, (slowest, paid)) = tokio::join!(pass, pay);
    let problem = problem.expect("a problem");
    assert!(problem.starts_with("1 order(s) could not be closed, ") && problem.contains("first 3: "), "{problem}");
    // The fourth is passed by while its payment has it.
    assert!(shop.db.count("true").await >= 18);
    // The trigger sleeps for eight.
    assert!(paid > 0 && slowest < secs(4), "{slowest:?} of {paid}");
}

/// The planner may ask a condition of every row that it comes by.
#[tokio::test]
async fn a_guard_that_raises_for_one_order_keeps_no_other_open() {
    let mut shop = Shop::new("ended_guard").await;
    shop.db.batch_execute("alter table orders add n int not null default 1").await.unwrap();
    shop.rule.guard = Some("100 / o.n > 0".into());
    let orders = "insert into orders select i, case i when 21 then 'paid' else 'pending' end, now() - interval '1 h', \
        case when i in (3, 21) then 0 when i = 4 then 200 else 1 end from generate_series(1, 21) i";
    shop.db.batch_execute(orders).await.unwrap();
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.starts_with("1 order(s) could not be closed, 18 other(s) were; first 3: "), "{problem}");
    assert!(problem.contains("division by zero"), "{problem}");
    // The guard keeps the fourth.
    let open = "orders where status = 'pending' and id in (3, 4)";
    assert_eq!((shop.count(open).await, shop.db.count("true").await), (2, 18));
}

/// Finding orders is where it is asked first.
#[tokio::test]
async fn a_guard_that_ends_the_session_for_one_order_keeps_no_other_open() {
    let mut shop = Shop::new("ended_guard_session").await;
    let fatal = "create function fatal(id bigint) returns boolean language plpgsql as $$ begin \
        if id = 3 then perform pg_terminate_backend(pg_backend_pid()); end if; return true; end $$";
    shop.db.batch_execute(fatal).await.unwrap();
    shop.rule.guard = Some("fatal(o.id)".into());
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let problem = shop.pass().await.expect("a problem");
    assert!(
        problem.starts_with("1 order(s) could not be closed, 19 other(s) were; first 3: the database ended"),
        "{problem}"
    );
    assert_eq!(shop.db.count("true").await, 19);
}

/// What a statement says of its rows is from before these triggers.
#[tokio::test]
async fn an_order_that_a_trigger_opens_again_has_no_event_and_is_named() {
    for (name, when) in [("after", "trigger undo after"), ("deferred", "constraint trigger undo after")] {
        let shop = Shop::new(&format!("ended_{name}")).await;
        let each = if name == "after" { "for each row" } else { "deferrable initially deferred for each row" };
        let undo = format!(
            "create function undo() returns trigger language plpgsql as $$ begin \
             update orders set status = 'pending' where id = new.id; return new; end $$; \
             create {when} update on orders {each} when (new.id = 3 and new.status = 'closed') execute function undo()"
        );
        shop.db.batch_execute(&undo).await.unwrap();
        shop.orders(1..=5, "pending", LONG_AGO).await;
        let problem = shop.pass().await.expect("a problem");
        let said = "1 order(s) could not be closed, 4 other(s) were; first 3: the rule still applies to an order";
        assert!(problem.starts_with(said), "{name}: {problem}");
        assert_eq!((shop.status(3).await.as_str(), shop.db.count("true").await), ("pending", 4), "{name}");
        assert_eq!(shop.db.count("key = '3'").await, 0, "{name}");
    }
}

/// Nobody waits for the next period, and no order is blamed.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_locked_in_the_middle_of_a_pass_is_named_and_the_pass_goes_on_behind_the_lock() {
    let shop = Shop::new("ended_table").await;
    shop.orders(1..=20_000, "pending", LONG_AGO).await;
    let running = shop.sweep();
    wait_until(secs(20), async || shop.count("duebox.outbox").await > 0).await;
    let migration = shop.rig.db().await;
    migration.batch_execute("begin; lock table orders").await.unwrap();
    let said = |text: &str| running.problem().is_some_and(|problem| problem.contains(text));
    wait_until(secs(20), async || said("no answer in time about table public.orders of rule unpaid")).await;
    migration.batch_execute("commit").await.unwrap();
    wait_until(secs(60), async || shop.count("orders where status = 'pending'").await == 0).await;
    wait_until(secs(10), async || running.problem().is_none()).await;
    running.stop().await;
}

/// Whoever is asked for one order asks the guard of no other.
#[tokio::test]
async fn closing_one_order_asks_the_guard_of_no_other() {
    let mut shop = Shop::new("ended_other").await;
    shop.db.batch_execute("alter table orders add n int not null default 1").await.unwrap();
    shop.rule.guard = Some("100 / o.n > 0".into());
    let orders = "insert into orders select i, 'pending', now() - interval '1 h', i - 1 from generate_series(1, 10) i";
    shop.db.batch_execute(orders).await.unwrap();
    for id in 2..=10 {
        assert!(shop.try_one(&id.to_string()).await, "order {id}");
    }
    wait_until(secs(5), async || shop.count("orders where status = 'pending'").await == 1).await;
}
