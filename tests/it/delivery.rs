//! A committed row reaches its queue, once, on time, with everything it carried.

use crate::support::consumer::Consumer;
use crate::support::db::Row;
use crate::support::rig::Rig;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_row_walks_from_insert_through_its_delay_to_the_target_queue() {
    let rig = Rig::new("walk");
    let daemon = rig.relay("[tier.t2s]\ndelay = \"2s\"\ntarget = { queue = \"due\" }\n");
    let db = rig.db().await;
    let row = Row {
        kind: Some("order.created".into()),
        payload: serde_json::json!({"b": 1, "a": [1.50, "é"]}),
        headers: serde_json::json!({"traceparent": "00-ab-cd-01"}),
        ..Row::new("t2s").key("order-1")
    };
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    let (id, message_id) = db.insert(&row).await;
    let delivery = due.next(SOON).await.expect("it arrives");
    let age: f64 = db
        .query_one("select extract(epoch from clock_timestamp() - created_at)::float8 from duebox.outbox", &[])
        .await
        .unwrap()
        .get(0);
    assert!(age >= 2.0, "not before it is due, but after {age} s");
    assert_eq!(delivery.message_id, message_id.to_string());
    assert_eq!(delivery.kind, "order.created");
    let stored: String = db.query_one("select payload::text from duebox.outbox", &[]).await.unwrap().get(0);
    assert_eq!(delivery.text(), stored, "byte for byte as Postgres prints it");
    let header = |name: &str| delivery.headers.get(name).cloned().unwrap_or_default();
    assert_eq!(header("x-duebox-row"), id.to_string());
    assert_eq!(header("x-duebox-key"), "order-1");
    assert_eq!(header("x-duebox-tier"), "t2s");
    assert_eq!(header("traceparent"), "00-ab-cd-01");
    assert_eq!(db.count("sent_at is not null and attempts = 0").await, 1);
    drop(daemon);
}
