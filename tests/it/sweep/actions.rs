//! What closing does: other columns, a reminder without a status, a payload of one's own, a function of one's own.

use super::shop::{Shop, set};
use duebox::config::{Action, Event};
use duebox::rule::{Closing, Kept};

const LONG_AGO: f64 = 2_000.0;

impl Shop {
    fn event(&mut self) -> &mut Event {
        self.rule.event.as_mut().unwrap()
    }

    async fn text(&self, query: &str) -> String {
        self.db.query_one(query, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn closing_sets_other_columns_from_the_row_as_it_was() {
    let mut shop = Shop::new("rule_set").await;
    shop.db.batch_execute("alter table orders add \"Closed\" timestamptz, add version int default 7").await.unwrap();
    let columns = [("Closed", "now() -- so late"), ("version", "version + (select count(*) from orders)::int")];
    let columns = columns.map(|(column, value)| (column.to_owned(), value.to_owned())).into();
    shop.rule.action = Action::Update { to: Some("closed".into()), set: columns };
    shop.orders(1..=3, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    let closed = "orders where status = 'closed' and \"Closed\" > now() - interval '1 min' and version = 10";
    assert_eq!((shop.count(closed).await, shop.db.count("true").await), (3, 3));
}

/// As an ORM does that has read the order before it was closed.
#[tokio::test]
async fn a_version_checked_flush_brings_no_order_back_whose_close_raised_the_version() {
    for (raised, revived) in [(true, 0), (false, 1)] {
        let mut shop = Shop::new("rule_flush").await;
        shop.db.batch_execute("alter table orders add version int default 0, add address text").await.unwrap();
        if raised {
            let set = [("version".to_owned(), "version + 1".to_owned())].into();
            shop.rule.action = Action::Update { to: Some("closed".into()), set };
        }
        shop.orders(1..=1, "pending", LONG_AGO).await;
        assert!(matches!(shop.one("1").await, Closing::Closed(_)));
        let flush = "update orders set status = 'pending', address = 'x', version = 1 where id = 1 and version = 0";
        assert_eq!(shop.db.execute(flush, &[]).await.unwrap(), revived, "raised: {raised}");
    }
}

#[tokio::test]
async fn a_rule_without_a_status_of_its_own_reminds_once() {
    let mut shop = Shop::new("rule_reminds").await;
    shop.db.batch_execute("alter table orders add reminded_at timestamptz").await.unwrap();
    shop.rule.action = set([("reminded_at", "now()")]);
    shop.rule.guard = Some("reminded_at is null".into());
    shop.orders(1..=3, "pending", LONG_AGO).await;
    shop.orders(4..=4, "paid", LONG_AGO).await;
    for _ in 0..2 {
        assert_eq!(shop.pass().await, None);
        let reminded = "orders where status = 'pending' and reminded_at is not null";
        assert_eq!((shop.count(reminded).await, shop.db.count("true").await), (3, 3));
    }
    assert_eq!(shop.kept("1").await, Kept::Guarded);
    let to = shop.text("select payload ->> 'to' from duebox.outbox where key = '1'").await;
    assert_eq!(to, "pending");
    shop.orders(5..=5, "pending", LONG_AGO).await;
    assert!(matches!(shop.one("5").await, Closing::Closed(_)));
    assert_eq!(shop.db.count("key = '5'").await, 1);
}

#[tokio::test]
async fn a_reminder_that_comes_again_and_an_order_that_is_opened_again_have_an_event_each_time() {
    let mut shop = Shop::new("rule_again").await;
    shop.db.batch_execute("alter table orders add reminded_at timestamptz").await.unwrap();
    shop.orders(1..=2, "pending", LONG_AGO).await;
    let close = shop.rule.action.clone();
    shop.rule.action = set([("reminded_at", "now()")]);
    shop.rule.guard = Some("reminded_at is null or reminded_at < now() - interval '1 day'".into());
    for reminders in [1, 1, 2, 2] {
        if reminders != shop.db.count("key = '1'").await {
            shop.db.batch_execute("update orders set reminded_at = now() - interval '25 h'").await.unwrap();
        }
        assert_eq!(shop.pass().await, None);
        assert_eq!((shop.db.count("key = '1'").await, shop.db.count("true").await), (reminders, 2 * reminders));
    }
    (shop.rule.action, shop.rule.guard) = (close, None);
    for closes in 1..=2 {
        shop.db.batch_execute("update orders set status = 'pending'").await.unwrap();
        for _ in 0..2 {
            assert_eq!(shop.pass().await, None);
            let told = "key = '1' and payload ->> 'to' = 'closed'";
            assert_eq!((shop.status(1).await.as_str(), shop.db.count(told).await), ("closed", closes));
        }
    }
}

/// Else it would remind in every pass.
#[tokio::test]
async fn a_rule_that_still_applies_after_what_it_sets_is_refused_and_changes_nothing() {
    let mut shop = Shop::new("rule_for_ever").await;
    shop.db.batch_execute("alter table orders add reminded_at timestamptz").await.unwrap();
    shop.rule.action = set([("reminded_at", "now()")]);
    shop.orders(1..=80, "pending", LONG_AGO).await;
    let problem = shop.pass().await.expect("a problem");
    assert!(problem.contains("still applies to an order after its `set`"), "{problem}");
    assert_eq!((shop.count("orders where reminded_at is null").await, shop.db.count("true").await), (80, 0));
    // Another due ends it as well.
    shop.rule.action = set([("due", "now()")]);
    assert_eq!(shop.pass().await, None);
    assert_eq!(shop.db.count("true").await, 80);
}

#[tokio::test]
async fn the_event_says_what_the_rule_makes_of_the_closed_row() {
    let mut shop = Shop::new("rule_payload").await;
    shop.event().payload = Some("jsonb_build_object('no', o.id, 'now', status, 'total', (select 12.5))".into());
    shop.orders(1..=1, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    let payload = shop.text("select payload::text from duebox.outbox").await;
    assert_eq!(payload, r#"{"no": 1, "now": "closed", "total": 12.5}"#);
}

const CLOSE: &str = "create table stock (order_id bigint); \
    create function close_order(id bigint) returns RESULT language plpgsql as $$ begin \
    if id = 2 then return FALSE; end if; \
    if id = 3 then raise exception 'stock of order % is negative', id; end if; \
    insert into stock values (id); \
    if id = 4 then delete from orders o where o.id = close_order.id; end if; \
    if id <> 5 then update orders o set status = 'closed' where o.id = close_order.id; end if; \
    return TRUE; end $$";

#[tokio::test]
async fn a_function_of_the_shop_closes_one_order_at_a_time() {
    for (result, no, yes) in [("boolean", "false", "true"), ("void", "", "")] {
        let mut shop = Shop::new(&format!("rule_function_{result}")).await;
        let function = CLOSE.replace("RESULT", result).replace("FALSE", no).replace("TRUE", yes);
        shop.db.batch_execute(&function).await.unwrap();
        shop.rule.action = Action::Function("close_order".into());
        shop.orders(1..=20, "pending", LONG_AGO).await;
        shop.orders(21..=21, "paid", LONG_AGO).await;
        let problem = shop.pass().await.expect("a problem");
        // Nothing is what void says of order 2, whose function did nothing.
        let refused = if result == "void" { 3 } else { 2 };
        assert!(problem.contains(&format!("{refused} order(s)")), "{result}: {problem}");
        assert_eq!(shop.count("orders where status = 'closed'").await, 16, "{result}");
        // Each with its event, and order 4 is gone.
        assert_eq!((shop.count("stock").await, shop.db.count("true").await), (17, 17), "{result}");
        for id in [2, 3, 5] {
            assert_eq!(
                (shop.status(id).await.as_str(), shop.count(&format!("stock where order_id = {id}")).await),
                ("pending", 0)
            );
        }
        let event = "select payload - 'due_at' - 'closed_at' - 'rule' from duebox.outbox where key = '1'";
        let event: serde_json::Value = shop.db.query_one(event, &[]).await.unwrap().get(0);
        assert_eq!(event, serde_json::json!({"id": 1, "from": "pending", "to": "closed", "by": "sweep"}));
        if result == "boolean" {
            assert_eq!(shop.kept("2").await, Kept::Declined);
        }
    }
}

#[tokio::test]
async fn what_a_function_does_to_another_order_is_seen_before_that_one_is_closed() {
    let mut shop = Shop::new("rule_function_pays").await;
    let function = "create function close_order(id bigint) returns void language sql as $$ \
        update orders set status = 'paid' where orders.id = 2 and close_order.id = 1; \
        update orders set status = 'closed' where orders.id = close_order.id $$";
    shop.db.batch_execute(function).await.unwrap();
    shop.rule.action = Action::Function("close_order".into());
    shop.orders(1..=1, "pending", 2.0 * LONG_AGO).await;
    shop.orders(2..=2, "pending", LONG_AGO).await;
    assert_eq!(shop.pass().await, None);
    assert_eq!((shop.status(1).await.as_str(), shop.status(2).await.as_str()), ("closed", "paid"));
}
