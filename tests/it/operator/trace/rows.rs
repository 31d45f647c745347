//! What became of each message, and where it should be now.

use super::{Desk, ORDERS, SHOP};
use crate::support::db::{Db, Row};

/// Writes a row of this age with these columns besides.
async fn row(db: &Db, key: &str, tier: &str, age: f64, set: &str) -> String {
    let (id, message_id) = db.insert(&Row { age, ..Row::new(tier).key(key) }).await;
    if !set.is_empty() {
        db.execute(&format!("update duebox.outbox set {set} where id = $1"), &[&id]).await.unwrap();
    }
    message_id.to_string()
}

/// State and place of the only message of a key.
#[track_caller]
fn place(desk: &Desk, key: &str) -> (String, String) {
    let known = desk.known(key);
    let [message] = known["messages"].as_array().unwrap().as_slice() else { panic!("one message: {known}") };
    let text = |name: &str| message[name].as_str().unwrap().to_owned();
    (text("state"), text("place"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_key_is_where_its_tier_says() {
    let (desk, db) = Desk::shop("trace_place", SHOP, ORDERS).await;
    // Age, what became of it; its state and where it should be.
    let sent = "sent_at = created_at + interval '1 s'";
    let overdue = "sent_at = created_at + interval '31 min'";
    let cases = [
        ("waits", "order-30m", 60.0, sent, "sent", "; in delay queue 'waiting' until "),
        ("out", "order-30m", 3_600.0, sent, "sent", " in queue 'due', or with whoever consumes it"),
        ("late", "order-30m", 3_600.0, overdue, "sent", "Z; in queue 'due', or with whoever consumes it"),
        ("straight", "now", 1.0, "sent_at = now()", "sent", "Z; in queue 'closed', or with whoever consumes it"),
        ("keyed", "events", 1.0, "sent_at = now(), routing_key = 'a.b'", "sent", "exchange 'amq.topic' with key 'a.b'"),
        ("gone", "gone-tier", 1.0, "sent_at = now()", "sent", "relay.toml does not have its tier"),
        ("held", "now", 1.0, "available_at = now() + interval '1 h'", "held", "held in the outbox until "),
        ("waiting", "now", 100.0, "available_at = created_at", "pending", "in the outbox: it may go since "),
        ("taken", "now", 1.0, "cancelled_at = now()", "cancelled", "cancelled 2"),
        ("parked", "now", 1.0, "parked_at = now(), last_error = 'too large'", "parked", "out of circulation"),
    ];
    for (key, tier, age, set, state, words) in cases {
        row(&db, key, tier, age, set).await;
        let (found, text) = place(&desk, key);
        assert!(found == state && text.contains(words), "{key}: {found}, {text}");
    }
    let due = desk.known("waits")["messages"][0].clone();
    let minutes = |name: &str| due[name].as_str().unwrap()[14..16].parse::<u32>().unwrap();
    assert_eq!((minutes("created_at") + 30) % 60, minutes("due_at"), "{due}");
    desk.says(&["trace", "waits"], 0, &["message without type in tier order-30m as ", ", then queue 'due'"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_step_is_the_one_that_helps() {
    let (desk, db) = Desk::shop("trace_next", SHOP, ORDERS).await;
    let again = "available_at = now() + interval '1 min', attempts = 1, last_error = 'returned: 312 NO_ROUTE'";
    let refused = row(&db, "refused", "now", 1.0, again).await;
    let next = desk.next("refused");
    let words =
        format!("cure what the last error of message {refused} says (returned: 312 NO_ROUTE); it is tried again at 2");
    assert!(next.starts_with(&words), "{next}");
    db.batch_execute("update duebox.outbox set available_at = now()").await.unwrap();
    assert!(desk.next("refused").ends_with("it is tried again now"), "{}", desk.next("refused"));
    db.batch_execute("update duebox.outbox set attempts = 0").await.unwrap();
    let next = desk.next("refused");
    assert!(next.contains("goes when a relay runs"), "requeued, it has its last error still: {next}");
    let id = row(&db, "parked", "now", 1.0, "parked_at = now(), attempts = 3, last_error = E'no\\nway'").await;
    let text = desk.says(
        &["trace", "parked"],
        0,
        &["failed attempts 3", "last: no\\nway\n", "next: cure what its last error"],
    );
    let cure = text.lines().last().unwrap().split_once("then: ").unwrap().1;
    assert_eq!(cure, format!("select duebox.requeue('{id}'::uuid);"));
    desk.rig.db_as(&desk.role).await.batch_execute(cure).await.unwrap();
    assert_eq!(desk.known("parked")["messages"][0]["state"], "pending");

    row(&db, "typo", "ordr-30m", 1.0, "").await;
    let next = desk.next("typo");
    assert!(next.contains("no 'ordr-30m'; add the tier"), "{next}");
    assert!(next.ends_with("did the application mean 'order-30m'?"), "{next}");
    row(&db, "waits", "now", 100.0, "available_at = created_at").await;
    assert!(desk.next("waits").contains("duebox status says why"), "{}", desk.next("waits"));
    desk.says(&["pause", "tier", "now", "--reason", "a recount"], 0, &[]);
    let next = desk.next("waits");
    assert!(next.starts_with("paused: tier now since 2") && next.ends_with(": duebox resume tier now"), "{next}");
    desk.says(&["trace", "waits"], 0, &["in the outbox: paused\n", "paused tier now since ", ": a recount\n"]);
    row(&db, "sent", "now", 1.0, "sent_at = now()").await;
    assert_eq!(desk.next("sent"), "nothing to do", "a pause is nothing to a message that was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_in_order_and_a_key_with_thousands_of_them_is_cut_with_a_word() {
    let (desk, db) = Desk::shop("trace_many", SHOP, ORDERS).await;
    db.execute("insert into duebox.outbox (tier, key, type, payload) select 'now', 'all', i::text, '{}' from generate_series(1, 3000) i", &[]).await.unwrap();
    let known = desk.known("all");
    let shown: Vec<i32> = known["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["type"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(shown, Vec::from_iter(2901..=3000));
    assert_eq!(known["left_out"], 2900);
    desk.says(&["trace", "all"], 0, &["2900 older messages are not shown"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_nobody_knows_is_said_to_be_unknown() {
    let (desk, _db) = Desk::shop("trace_unknown", SHOP, ORDERS).await;
    for key in ["17", "no-number", "99999999999999999999", "'; drop table orders; --"] {
        let parts = ["no row of the outbox has this key", "no order of orders has this id", "next: is the key right?"];
        desk.says(&["trace", key], 1, &parts);
    }
    let (code, json) = desk.run(&["trace", "17", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["messages"], &json["orders"][0]["found"]), (1, &serde_json::json!([]), &false.into()));
}
