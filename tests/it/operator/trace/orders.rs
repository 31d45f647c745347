//! The order as each rule sees it: whether it would be closed, or why not.

use super::{Desk, ORDERS, SHOP};
use serde_json::{Value, json};

/// Rules over other tables, and with more conditions.
const MORE: &str = "[rule.guarded]\ntable = \"public.holds\"\nid = \"code\"\nstatus = \"state\"\nfrom = [1, 2]\nto = 9\n\
    due = \"placed\"\nafter = \"1h\"\ntime_zone = \"Asia/Tokyo\"\nguard = \"not o.kept\"\n\
    not_before = \"2020-01-01T00:00:00Z\"\n\
    [rule.watched]\ntable = \"tickets\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"open\"]\nto = \"shut\"\n\
    due = \"due\"\nafter = \"1h\"\nmode = \"observe\"\n";

const TABLES: &str = "create table orders (id bigint primary key, status text, due timestamptz not null); \
    create table holds (code text primary key, state int, placed timestamp, kept boolean); \
    create type state as enum ('open', 'shut'); \
    create table tickets (id uuid primary key, status state, due timestamptz)";

/// What a rule says of a key.
#[track_caller]
fn seen(desk: &Desk, key: &str, rule: &str) -> Value {
    let known = desk.known(key);
    let order = known["orders"].as_array().unwrap().iter().find(|order| order["rule"] == rule).cloned();
    order.unwrap_or_else(|| panic!("rule {rule}: {known}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_open_early_overdue_or_left_and_the_next_step_fits() {
    let (desk, db) = Desk::shop("trace_orders", SHOP, ORDERS).await;
    let ago = |id: i64, status: &str, minutes: i64| {
        format!("insert into orders values ({id}, '{status}', now() - interval '{minutes} min');")
    };
    let pending = [(1, 10), (2, 31), (3, 600), (9, 36)].map(|(id, minutes)| ago(id, "pending", minutes));
    db.batch_execute(&(pending.concat() + &ago(4, "paid", 600))).await.unwrap();
    db.batch_execute("insert into orders values (5, null, now()), (6, 'pending', 'infinity')").await.unwrap();
    let relay = "set application_name = 'duebox listen'; insert into duebox.state (name) values ('sweep.unpaid')";
    db.batch_execute(relay).await.unwrap();
    let cases = [
        (
            "1",
            Some("early"),
            "pending, not overdue before ",
            "nothing to do: unless it leaves that status, rule unpaid",
        ),
        ("2", None, "pending, overdue since ", "nothing to do: the sweep of rule unpaid closes the order within 6m"),
        (
            "3",
            None,
            "it would be closed now",
            "nobody has closed it; its sweep runs: duebox status and the log say why; at once: duebox sweep --once --rule unpaid",
        ),
        // Half a minute after the sweep should have been there.
        ("9", None, "it would be closed now", "nothing to do yet: the sweep of rule unpaid is due"),
        ("4", Some("status"), "is paid; the rule leaves it alone", "nothing to do"),
        ("5", Some("status"), "is null; the rule leaves it alone", "nothing to do"),
        ("6", Some("undated"), "due at no finite time", "nothing to do"),
    ];
    for (key, kept, words, next) in cases {
        let order = seen(&desk, key, "unpaid");
        assert_eq!((&order["kept"], &order["closes"]), (&json!(kept), &json!(kept.is_none())), "{key}: {order}");
        assert!(order["text"].as_str().unwrap().contains(words), "{key}: {order}");
        assert!(desk.next(key).contains(next), "{key}: {}", desk.next(key));
    }
    db.batch_execute(
        "insert into orders values (7, 'closed', now()), (8, 'closed', now()); insert into duebox.outbox (tier, key, type, payload, sent_at) \
         values ('now', '7', 'order.closed', '{\"by\": \"closer\"}', now())",
    )
    .await
    .unwrap();
    let order = seen(&desk, "7", "unpaid");
    assert_eq!(order["closed_by"], "closer");
    assert!(order["text"].as_str().unwrap().contains("is closed; closed by the closer 2"), "{order}");
    assert_eq!(desk.next("7"), "nothing to do");
    assert!(
        seen(&desk, "8", "unpaid")["text"]
            .as_str()
            .unwrap()
            .ends_with("is closed; no event in the outbox tells by whom")
    );
    assert_eq!(
        db.query("select from orders where status = 'closed'", &[]).await.unwrap().len(),
        2,
        "nothing is changed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overdue_order_that_somebody_has_locked_is_said_to_be_with_the_query_that_finds_who() {
    let (desk, db) = Desk::shop("trace_locked", SHOP, ORDERS).await;
    let orders = "insert into orders values (2, 'pending', 'yesterday'), (4, 'paid', 'yesterday')";
    db.batch_execute(orders).await.unwrap();
    db.batch_execute("begin; select from orders where id in (2, 4) for update").await.unwrap();
    let order = seen(&desk, "2", "unpaid");
    assert_eq!((&order["kept"], &order["closes"]), (&json!("locked"), &json!(false)), "{order}");
    assert!(order["text"].as_str().unwrap().contains("left alone: somebody else has it locked"), "{order}");
    let next = desk.next("2");
    let (said, who) = next.split_once("; who may have it, the oldest first: ").unwrap_or_else(|| panic!("{next}"));
    assert!(said.contains("is closed when whoever has it locked lets it go"), "{next}");
    assert_eq!(db.query(who, &[]).await.unwrap().len(), 1, "{who}");
    assert_eq!(seen(&desk, "4", "unpaid")["kept"], "status", "its lock keeps nobody from anything");
    db.batch_execute("rollback").await.unwrap();
    assert!(seen(&desk, "2", "unpaid")["closes"].as_bool().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_named_where_it_keeps_the_order_open() {
    let (desk, db) = Desk::shop("trace_paused", SHOP, ORDERS).await;
    db.batch_execute("insert into orders values (1, 'pending', 'yesterday'), (2, 'paid', 'yesterday')").await.unwrap();
    for (what, kept) in [(&["sweep"][..], "asker_paused"), (&["rule", "unpaid"], "paused")] {
        desk.says(&[&["pause"][..], what].concat(), 0, &[]);
        assert_eq!(seen(&desk, "1", "unpaid")["kept"], kept);
        assert!(desk.next("1").ends_with(&format!(": duebox resume {}", what.join(" "))), "{}", desk.next("1"));
        assert_eq!(seen(&desk, "2", "unpaid")["kept"], "status", "the end of the pause changes nothing for it");
        desk.says(&[&["resume"][..], what].concat(), 0, &[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_that_has_the_id_says_its_own() {
    let (desk, db) = Desk::shop("trace_rules", &format!("{SHOP}{MORE}"), TABLES).await;
    let id = "0190163d-8694-739b-aea5-966c26f8ad91";
    db.batch_execute(&format!(
        "insert into orders values (1, 'pending', 'yesterday'); \
         insert into holds values ('1', 1, now() at time zone 'Asia/Tokyo' - interval '2 h', true), \
         ('it''s', 2, now() at time zone 'Asia/Tokyo' - interval '30 min', false), ('old', 2, '2019-01-01', false); \
         insert into tickets values ('{id}', 'open', 'yesterday')"
    ))
    .await
    .unwrap();
    assert!(seen(&desk, "1", "unpaid")["closes"].as_bool().unwrap());
    assert_eq!(seen(&desk, "1", "guarded")["kept"], "guard");
    assert_eq!(seen(&desk, "1", "watched")["found"], false, "1 is no uuid");
    assert_eq!(seen(&desk, "it's", "guarded")["kept"], "early", "the due column is without zone");
    assert_eq!(seen(&desk, "old", "guarded")["kept"], "not_before");
    assert_eq!(seen(&desk, id, "watched")["kept"], "observe");
    assert_eq!(seen(&desk, &id.to_uppercase(), "watched")["found"], true);
    desk.says(
        &["trace", "1"],
        0,
        &["rule unpaid: the order in orders is pending", "rule watched: no order of tickets"],
    );
}

/// Two rules that tell in one type, as one consumer hears all closed orders, and one that only observes.
#[tokio::test(flavor = "multi_thread")]
async fn the_rule_that_closed_is_told_from_another_with_the_same_event_and_one_that_observes_closes_nothing() {
    let toml = SHOP.replace("event = ", "mode = \"observe\"\nevent = ");
    let (desk, db) = Desk::shop("trace_two", &format!("{toml}{LATER}"), ORDERS).await;
    let event = |key: i64, payload: &str| {
        format!(
            "insert into orders values ({key}, 'closed', now()); insert into duebox.outbox (tier, key, type, payload) \
             values ('now', '{key}', 'order.closed', '{payload}');"
        )
    };
    let events = [event(1, r#"{"by": "closer", "rule": "later"}"#), event(2, r#"{"order": 2, "rule": "of chess"}"#)];
    db.batch_execute(&events.concat()).await.unwrap();
    let closed_by = |key: &str, rule| seen(&desk, key, rule)["text"].as_str().unwrap().to_owned();
    assert!(closed_by("1", "later").contains("; closed by the closer 2"), "{}", closed_by("1", "later"));
    for (key, rule) in [("1", "unpaid"), ("2", "unpaid"), ("2", "later")] {
        let text = closed_by(key, rule);
        assert!(text.ends_with("is closed; no event in the outbox tells by whom"), "{key}, {rule}: {text}");
    }
    db.batch_execute("insert into orders values (3, 'pending', now()), (4, 'waiting', now())").await.unwrap();
    assert_eq!(desk.next("3"), "nothing to do");
    assert!(desk.next("4").contains("rule later closes the order after"), "{}", desk.next("4"));
}

const LATER: &str = "[rule.later]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"waiting\"]\n\
    to = \"closed\"\ndue = \"due\"\nafter = \"1h\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";
