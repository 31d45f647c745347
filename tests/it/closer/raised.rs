//! What a trigger raises is the failure of its order, whatever class of error it takes: the database is not away for that.

use super::shop::{LONG_AGO, Shop, refused};
use crate::support::wait::{secs, wait_until};

/// A lost connection, as dblink says it; a server that takes no writes; one that is full.
const RAISE: &str = "create function raise() returns trigger language plpgsql as $$ begin \
    if new.id = 1 then raise 'the stock server hung up' using errcode = '08006'; end if; \
    if new.id = 2 then raise 'the stock server is a standby' using errcode = '25006'; end if; \
    if new.id = 3 then raise 'the stock server is full' using errcode = '53400'; end if; \
    return new; end $$; create trigger raise before update on orders for each row execute function raise()";

#[tokio::test(flavor = "multi_thread")]
async fn the_closer_parks_such_an_order_after_its_attempts_and_closes_the_others() {
    let shop = Shop::new("closer_raised").await;
    shop.db.batch_execute(RAISE).await.unwrap();
    let daemon = shop.daemon("max_attempts = 2");
    shop.orders(1..=20, "pending", LONG_AGO).await;
    shop.deliver_all(1..=20).await;
    wait_until(secs(30), async || shop.closed().await == 17).await;
    wait_until(secs(30), async || shop.db.count("parked_at is not null").await == 3).await;
    shop.wait_acked().await;
    let parked =
        "parked_at is not null and last_error like '%the stock server%PL/pgSQL function raise()%(attempt 2, the last)'";
    assert_eq!(shop.db.count(parked).await, 3);
    daemon.wait_log("order 1 could not be closed (attempt 1 of 2)", secs(5));
    shop.events_fit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_names_such_an_order_and_closes_its_neighbours() {
    let shop = Shop::new("sweep_raised").await;
    shop.db.batch_execute(RAISE).await.unwrap();
    shop.orders(1..=20, "pending", LONG_AGO).await;
    let daemon = shop.launch_with("", "", "every = \"1s\"\ngrace = \"0s\"");
    wait_until(secs(30), async || shop.closed().await == 17).await;
    for id in 1..=3 {
        daemon.wait_log(&format!("rule unpaid: order {id} could not be closed: "), secs(20));
    }
    shop.events_fit().await;
}

/// Ends its own session, as nothing but an outage does otherwise.
const END: &str = "create function fatal() returns trigger language plpgsql as $$ begin \
    if new.id = 1 then perform pg_terminate_backend(pg_backend_pid()); end if; return new; end $$; \
    create trigger fatal before update on orders for each row execute function fatal()";

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_close_ends_the_session_is_parked_after_its_attempts_and_the_others_are_closed() {
    let shop = Shop::new("closer_ended").await;
    shop.db.batch_execute(END).await.unwrap();
    let daemon = shop.daemon("max_attempts = 2");
    shop.orders(1..=20, "pending", LONG_AGO).await;
    shop.deliver_all(1..=20).await;
    wait_until(secs(30), async || shop.closed().await == 19).await;
    wait_until(secs(60), async || shop.db.count("parked_at is not null").await == 1).await;
    shop.wait_acked().await;
    let parked = "parked_at is not null and last_error like '%the database ended the session%(attempt 2, the last)'";
    assert_eq!(shop.db.count(parked).await, 1, "{}", daemon.log());
    shop.events_fit().await;
}

/// Its policies hide every order from the relay, from one moment to the next.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_row_level_security_hides_from_a_running_relay_is_not_taken_for_unknown() {
    let shop = Shop::new("closer_policies").await;
    let daemon = shop.daemon("");
    shop.orders(1..=5, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(20), async || shop.closed().await == 1).await;
    shop.db.batch_execute("alter table orders enable row level security").await.unwrap();
    shop.deliver_all(2..=5).await;
    let said = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    wait_until(secs(30), async || said().contains("rule unpaid: row-level security is on")).await;
    assert_eq!((refused(&daemon, "unknown"), shop.unacked()), (0.0, 4));
    shop.db.batch_execute("alter table orders disable row level security").await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 5).await;
    shop.wait_acked().await;
}

/// By the policy that duebox itself recommends, row-level security is on and hides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_order_is_unknown_under_policies_and_a_hidden_one_is_not_when_a_policy_goes() {
    let shop = Shop::new("closer_policy_goes").await;
    let policy =
        |name: &str, using: &str| format!("create policy {name} on orders to {} using ({using})", shop.between.role());
    shop.db.batch_execute("alter table orders enable row level security").await.unwrap();
    shop.db.batch_execute(&policy("all_of_them", "true")).await.unwrap();
    let daemon = shop.daemon("");
    shop.orders(1..=5, "pending", LONG_AGO).await;
    shop.deliver_all(1..=1).await;
    shop.deliver("77").await;
    shop.wait_acked().await;
    assert_eq!((shop.closed().await, refused(&daemon, "unknown")), (1, 1.0));
    // Some of them from now on, and none a moment later.
    shop.db.batch_execute(&format!("drop policy all_of_them on orders; {}", policy("few", "id < 3"))).await.unwrap();
    shop.deliver_all(2..=2).await;
    wait_until(secs(30), async || shop.closed().await == 2).await;
    shop.deliver_all(88..=88).await;
    shop.wait_acked().await;
    let unknown = refused(&daemon, "unknown");
    shop.db.batch_execute("drop policy few on orders").await.unwrap();
    shop.deliver_all(3..=5).await;
    let said = || daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
    wait_until(secs(30), async || said().contains("rule unpaid: row-level security is on")).await;
    assert_eq!((refused(&daemon, "unknown"), shop.unacked()), (unknown, 3));
    shop.db.batch_execute(&policy("again", "true")).await.unwrap();
    wait_until(secs(60), async || shop.closed().await == 5).await;
    shop.wait_acked().await;
}

/// The statements of a while ago have the old type.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_the_column_can_have_since_a_moment_ago_is_no_bad_one() {
    let shop = Shop::new("closer_wider").await;
    shop.db.batch_execute("alter table orders alter id type int").await.unwrap();
    let daemon = shop.daemon("");
    shop.orders(1..=1, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(20), async || shop.closed().await == 1).await;
    // By then the statements are no longer new: an order that is early by so much is looked at twice.
    shop.orders(2..=2, "pending", -3.0).await;
    shop.deliver("2").await;
    wait_until(secs(30), async || shop.closed().await == 2).await;
    shop.db.batch_execute("alter table orders alter id type bigint").await.unwrap();
    shop.orders(3_000_000_001..=3_000_000_005, "pending", LONG_AGO).await;
    shop.deliver_all(3_000_000_001..=3_000_000_005).await;
    shop.deliver("no number").await;
    wait_until(secs(30), async || shop.closed().await == 7).await;
    wait_until(secs(30), async || shop.db.count("parked_at is not null").await == 1).await;
    shop.wait_acked().await;
    assert_eq!(shop.db.count("parked_at is not null").await, 1, "{}", daemon.log());
}
