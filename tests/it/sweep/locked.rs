//! An order that somebody else has locked is passed by, which is counted; one that stays locked is named.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};
use std::time::Duration;

#[tokio::test]
async fn an_order_that_stays_locked_is_counted_in_each_pass_and_named_with_the_query_that_finds_who_has_it() {
    let mut shop = Shop::new("locked_long").await;
    shop.rule.every = Duration::from_millis(500);
    shop.orders(1..=5, "pending", 2_000.0).await;
    let abandoned = shop.rig.db().await;
    abandoned.batch_execute("begin; select from orders where id = 3 for update").await.unwrap();
    let running = shop.sweep();
    let counted = || {
        let text = running.metrics.render().unwrap();
        let of = "duebox_rule_refused_total{rule=\"unpaid\",by=\"sweep\",reason=\"locked\"} ";
        text.lines().find_map(|line| line.strip_prefix(of)).map_or(0, |count| count.parse().unwrap())
    };
    wait_until(secs(20), async || counted() > 0).await;
    assert_eq!(running.problem(), None, "a payment may be in hand");
    wait_until(secs(30), async || running.problem().is_some()).await;
    let problem = running.problem().unwrap();
    assert!(problem.starts_with("order 3 cannot be closed: somebody else has it locked"), "{problem}");
    assert!(counted() > 2, "named after {} passes", counted());
    let (_, who) = problem.split_once("the oldest first: ").unwrap();
    let who = shop.db.query(who, &[]).await.unwrap();
    let queries: Vec<String> = who.iter().map(|who| who.get("query")).collect();
    assert_eq!(queries, ["begin; select from orders where id = 3 for update"]);
    assert_eq!(shop.db.count("true").await, 4);
    abandoned.batch_execute("rollback").await.unwrap();
    wait_until(secs(20), async || shop.db.count("true").await == 5 && running.problem().is_none()).await;
    running.stop().await;
}
