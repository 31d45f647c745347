//! Orders that cannot be closed, however many and however old, keep no other order open.

use super::shop::{Shop, set, to};
use crate::support::wait::{secs, wait_until};
use duebox::config::Action;
use std::time::Duration;

const LONG_AGO: f64 = 2_000.0;

/// Fifteen orders that are refused, and twenty younger ones.
async fn orders(shop: &Shop) {
    shop.orders(1..=15, "pending", 2.0 * LONG_AGO).await;
    shop.orders(16..=35, "pending", LONG_AGO).await;
}

#[tokio::test]
async fn old_orders_for_which_the_function_does_nothing_or_returns_null_keep_no_younger_one_open() {
    for (name, result, skip) in [("void", "void", "return"), ("null", "boolean", "return null")] {
        let mut shop = Shop::new(&format!("stubborn_{name}")).await;
        let function = format!(
            "create function close_order(id bigint) returns {result} language plpgsql as $$ begin \
             if id <= 15 then {skip}; end if; \
             update orders o set status = 'closed' where o.id = close_order.id; return {}; end $$",
            if result == "void" { "" } else { "true" }
        );
        shop.db.batch_execute(&function).await.unwrap();
        shop.rule.action = Action::Function("close_order".into());
        orders(&shop).await;
        let problem = shop.pass().await.expect("a problem");
        assert!(
            problem.starts_with("15 order(s) could not be closed, 20 other(s) were; first 1: "),
            "{name}: {problem}"
        );
        assert_eq!(
            (shop.count("orders where status = 'closed'").await, shop.db.count("true").await),
            (20, 20),
            "{name}"
        );
    }
}

#[tokio::test]
async fn old_orders_that_an_update_leaves_overdue_keep_no_younger_one_open() {
    let mut shop = Shop::new("stubborn_update").await;
    // Fifteen stay overdue.
    shop.rule.action = set([("due", "case when id <= 15 then due else now() end")]);
    orders(&shop).await;
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.contains("15 order(s)") && problem.contains("still applies to an order"), "{problem}");
    assert_eq!(
        (shop.count("orders where due > now() - interval '1 min'").await, shop.db.count("true").await),
        (20, 20)
    );
}

#[tokio::test]
async fn a_pass_ends_at_the_thousandth_failure_and_the_next_goes_on_behind_it_and_then_begins_anew() {
    let mut shop = Shop::new("stubborn_many").await;
    shop.rule.every = Duration::from_millis(300);
    let refuse = "create function refuse() returns trigger language plpgsql as $$ begin \
        if new.id <= 1200 then raise exception 'no'; end if; return new; end $$; \
        create trigger refuse before update on orders for each row execute function refuse()";
    shop.db.batch_execute(refuse).await.unwrap();
    shop.orders(1..=1_200, "pending", 2.0 * LONG_AGO).await;
    shop.orders(1_201..=1_220, "pending", LONG_AGO).await;
    let running = shop.sweep();
    let said = |text: &str| running.problem().is_some_and(|problem| problem.starts_with(text));
    wait_until(secs(30), async || said("1000 order(s) could not be closed, no other was; first 1: ")).await;
    assert!(running.problem().unwrap().ends_with("the next pass goes on behind them"), "{:?}", running.problem());
    assert_eq!(shop.db.count("true").await, 0);
    wait_until(secs(30), async || said("1200 order(s) could not be closed, 20 other(s) were; first 1: ")).await;
    assert_eq!(shop.db.count("true").await, 20);
    shop.db.batch_execute("drop trigger refuse on orders").await.unwrap();
    wait_until(secs(30), async || shop.db.count("true").await == 1_220 && running.problem().is_none()).await;
    running.stop().await;
}

/// Such an order could be locked by nobody, and the statement that finds orders cannot name it.
#[tokio::test]
async fn an_order_without_an_id_keeps_no_other_open_and_no_id_breaks_a_line_of_the_log() {
    let mut shop = Shop::new("stubborn_null_id").await;
    let table = "alter table orders drop constraint orders_pkey; alter table orders alter id drop not null; \
        alter table orders alter id type text; \
        create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; \
        create trigger refuse before update on orders for each row when (new.id like '2%') execute function refuse(); \
        insert into orders select id, 'pending', now() - interval '1 h' from unnest(array[null, '1', e'2\nWARN']) id";
    shop.db.batch_execute(table).await.unwrap();
    shop.rule.action = to("closed");
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.contains("first 2\\nWARN: ") && !problem.contains('\n'), "{problem}");
    assert_eq!(shop.count("orders where status = 'closed' and id = '1'").await, 1);
    assert_eq!(shop.count("orders where status = 'pending'").await, 2);
}
