//! Failures of the database: a close and its event are both there or both not, and the sweep goes on.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};

const LONG_AGO: f64 = 2_000.0;

#[tokio::test]
async fn a_backend_killed_between_close_and_event_leaves_neither_and_the_next_try_does_both() {
    let mut shop = Shop::new("outage_between").await;
    shop.rule.every = secs(1);
    let wait = "create function wait() returns trigger language plpgsql as $$ begin \
        perform pg_advisory_xact_lock_shared(1); return new; end $$; \
        create trigger wait before insert on duebox.outbox for each row execute function wait()";
    shop.db.batch_execute(wait).await.unwrap();
    shop.orders(1..=3, "pending", LONG_AGO).await;
    shop.db.batch_execute("select pg_advisory_lock(1)").await.unwrap();
    let running = shop.sweep();
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
        where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'";
    wait_until(secs(10), async || shop.db.query_one(kill, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    wait_until(secs(5), async || running.problem().is_some()).await;
    assert_eq!(shop.count("orders where status = 'pending'").await, 3);
    assert_eq!(shop.db.count("true").await, 0);
    shop.db.batch_execute("select pg_advisory_unlock(1)").await.unwrap();
    wait_until(secs(10), async || shop.db.count("true").await == 3 && running.problem().is_none()).await;
    assert_eq!(shop.count("orders where status = 'closed'").await, 3);
    running.stop().await;
}

#[tokio::test]
async fn a_revoked_right_is_said_and_given_back_the_next_pass_works() {
    let mut shop = Shop::new("outage_revoked").await;
    shop.rule.every = secs(1);
    let relay = shop.rig.create_role("relay");
    shop.rig.migrate(&["--grant-relay", &relay]);
    shop.db.batch_execute(&format!("grant select, update on orders to {relay}")).await.unwrap();
    shop.sweep_as(&relay);
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let running = shop.sweep();
    wait_until(secs(10), async || shop.status(1).await == "closed").await;
    shop.db.batch_execute(&format!("revoke update on orders from {relay}")).await.unwrap();
    wait_until(secs(10), async || running.problem().is_some_and(|problem| problem.contains("grant update (status)")))
        .await;
    shop.orders(2..=2, "pending", LONG_AGO).await;
    shop.db.batch_execute(&format!("grant update on orders to {relay}")).await.unwrap();
    wait_until(secs(10), async || shop.status(2).await == "closed" && running.problem().is_none()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_locked_table_does_not_end_the_sweep() {
    let mut shop = Shop::new("outage_locked").await;
    shop.rule.every = secs(1);
    shop.orders(1..=1, "pending", LONG_AGO).await;
    let other = shop.rig.db().await;
    other.batch_execute("begin; lock table orders").await.unwrap();
    let running = shop.sweep();
    wait_until(secs(30), async || running.problem().is_some()).await;
    other.batch_execute("commit").await.unwrap();
    wait_until(secs(30), async || shop.status(1).await == "closed" && running.problem().is_none()).await;
    running.stop().await;
}
