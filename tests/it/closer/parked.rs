//! A message that cannot be applied is parked with its reason, once, and nothing of it is lost.

use super::shop::{LONG_AGO, Shop, message};
use crate::support::wait::{secs, wait_until};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_means_nothing_is_parked_once_with_its_reason_and_holds_nobody_up() {
    let shop = Shop::new("closer_malformed").await;
    let daemon = shop.daemon("");
    let mut nul = FieldTable::default();
    nul.insert("x-duebox-key".into(), AMQPValue::LongString("1\0".into()));
    nul.insert("n\0ul".into(), AMQPValue::LongString("a\0b".into()));
    let long = "7".repeat(5_000);
    let messages = [
        ("no key", message(Some("unpaid-2s"), None), "it has no key, and rule.unpaid.id_pointer"),
        ("nothing", BasicProperties::default(), "it has no key"),
        ("no number", message(Some("unpaid-2s"), Some("A-7")), "'A-7' is no id of orders"),
        ("too large", message(Some("unpaid-2s"), Some("99999999999999999999")), "is no id of orders"),
        ("too long", message(Some("unpaid-2s"), Some(&long)), "is no id of orders"),
        ("nul", BasicProperties::default().with_headers(nul), "is no id of orders"),
        ("no rule", message(Some("now"), Some("1")), "no rule is about the messages of tier now"),
    ];
    shop.orders(1..=1, "pending", LONG_AGO).await;
    for _ in 0..2 {
        for (body, properties, _) in &messages {
            shop.publish(body.as_bytes(), properties.clone()).await;
        }
    }
    shop.deliver("1").await;
    wait_until(secs(20), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    for (body, _, reason) in &messages {
        let parked = "select tier, key, last_error, body, due_at <= now() from duebox.outbox \
            where parked_at is not null and body = convert_to($1, 'UTF8')";
        let rows = shop.db.query(parked, &[body]).await.unwrap();
        assert_eq!(rows.len(), 1, "{body}: {}", daemon.log());
        let (tier, said, due): (&str, &str, bool) = (rows[0].get(0), rows[0].get(2), rows[0].get(4));
        assert!(tier == "unpaid-2s" && due && said.contains(reason), "{body}: {said}");
    }
    let parked = i64::try_from(messages.len()).unwrap();
    assert_eq!(shop.db.count("parked_at is not null").await, parked);
    assert_eq!(shop.db.count("parked_at is not null and key = 'A-7' and headers ? 'traceparent'").await, 1);
    assert_eq!(daemon.metric("duebox_closer_parked_total{queue=\"due\"}"), Some(parked as f64 * 2.0));
    daemon.wait_log("was parked, as ", secs(5));
}

const FAIL: &str = "create function fail() returns trigger language plpgsql as $$ begin \
    if new.status = 'closed' then raise 'out of stock cards'; end if; return new; end $$; \
    create trigger fail before update on orders for each row execute function fail()";

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_closed_is_parked_after_its_attempts_and_requeued_it_comes_back() {
    let shop = Shop::new("closer_fails").await;
    let daemon = shop.daemon("max_attempts = 2");
    shop.db.batch_execute(FAIL).await.unwrap();
    shop.orders(1..=1, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(30), async || shop.db.count("parked_at is not null").await == 1).await;
    shop.wait_acked().await;
    let parked = "key = '1' and last_error like '%out of stock cards%(attempt 2, the last)'";
    assert_eq!(shop.db.count(parked).await, 1);
    daemon.wait_log("order 1 could not be closed (attempt 1 of 2)", secs(5));
    shop.db.batch_execute("drop trigger fail on orders").await.unwrap();
    let requeue = "select duebox.requeue(message_id) from duebox.outbox where parked_at is not null";
    shop.db.execute(requeue, &[]).await.unwrap();
    wait_until(secs(30), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    shop.events_fit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_does_not_fit_is_said_and_no_message_is_lost_over_it() {
    let shop = Shop::new("closer_misfit").await;
    let role = shop.between.role().to_owned();
    shop.db.batch_execute(&format!("revoke update (status) on orders from {role}")).await.unwrap();
    let daemon = shop.daemon("max_attempts = 1");
    shop.orders(1..=1, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(20), async || daemon.get("/readyz").is_some_and(|(_, text)| text.contains("grant update"))).await;
    assert_eq!((shop.unacked(), shop.db.count("true").await), (1, 0));
    shop.db.batch_execute(&format!("grant update (status) on orders to {role}")).await.unwrap();
    wait_until(secs(30), async || shop.status(1).await == "closed").await;
    wait_until(secs(30), async || daemon.get("/readyz").is_some_and(|(_, text)| !text.contains("grant update"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_an_identity_that_comes_again_after_a_requeue_is_parked_again() {
    let shop = Shop::new("closer_nameless").await;
    let _daemon = shop.daemon("");
    let nameless = async || shop.publish(b"nonsense", BasicProperties::default()).await;
    let parked = async |count| {
        wait_until(secs(30), async || shop.db.count("parked_at is not null and sent_at is null").await == count).await;
        shop.wait_acked().await;
    };
    nameless().await;
    parked(1).await;
    shop.db.execute("select duebox.requeue(message_id) from duebox.outbox", &[]).await.unwrap();
    // It has an identity now, and a row of its own.
    wait_until(secs(30), async || shop.db.count("true").await == 2).await;
    parked(1).await;
    nameless().await;
    parked(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_an_identity_are_told_apart_by_what_they_are_about() {
    let shop = Shop::new("closer_alike").await;
    let _daemon = shop.daemon("");
    for key in ["abc", "def"] {
        let about = message(Some("unpaid-2s"), Some(key));
        let nameless = BasicProperties::default().with_headers(about.headers().clone().unwrap());
        shop.publish(b"{}", nameless).await;
    }
    wait_until(secs(30), async || shop.db.count("parked_at is not null").await == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_the_column_cannot_have_costs_no_connection() {
    let shop = Shop::new("closer_bad_ids").await;
    let _daemon = shop.daemon("concurrency = 1");
    shop.orders(1..=1, "pending", LONG_AGO).await;
    shop.deliver("1").await;
    wait_until(secs(20), async || shop.status(1).await == "closed").await;
    shop.wait_acked().await;
    let sessions = async || {
        let sessions = format!(
            "select pid from pg_stat_activity where datname = '{}' and application_name = 'duebox'",
            shop.between.rig.name()
        );
        let rows = shop.between.superuser().await.query(&sessions, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect::<std::collections::BTreeSet<i32>>()
    };
    let before = sessions().await;
    for id in 0..20 {
        shop.deliver(&format!("A-{id}")).await;
    }
    wait_until(secs(30), async || shop.db.count("parked_at is not null").await == 20).await;
    let after = sessions().await;
    assert!(!before.is_empty() && before.is_subset(&after), "{before:?} {after:?}");
}
