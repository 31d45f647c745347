//! A committed row reaches its queue, once, on time, with everything it carried.

mod cancelled;
mod kinds;
mod memory;
mod on_time;
mod own_time;
mod redelivered;
mod refused;
mod several;
mod stopped;
mod turns;
mod ways;

use crate::support::consumer::{Consumer, Delivery};
use crate::support::db::{Db, Row};
use crate::support::rig::Rig;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// How early a message may come by the test's clock, in seconds: RabbitMQ counts delays by its own (7 ms were seen).
const CLOCK: f64 = 0.05;

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

/// Seconds by which each delivery came after its row was due, in a tier with this delay; negative when it came early.
/// The clock of the database is this machine's, so it can be compared with the time of arrival.
async fn lateness(db: &Db, delay: f64, deliveries: &[Delivery]) -> Vec<f64> {
    let due = "select message_id::text, coalesce(due_at, created_at + $1::float8 * interval '1 s') from duebox.outbox";
    let rows = db.query(due, &[&delay]).await.unwrap();
    let due: HashMap<String, SystemTime> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let late = |delivery: &Delivery| match delivery.received.duration_since(due[&delivery.message_id]) {
        Ok(late) => late.as_secs_f64(),
        Err(early) => -early.duration().as_secs_f64(),
    };
    deliveries.iter().map(late).collect()
}
