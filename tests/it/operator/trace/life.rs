//! One order with the real daemon, from the row to its end.

use super::super::Desk;
use crate::support::consumer::Inspector;
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

/// Its message is ignored; the sweep closes it.
const TABLES: &str = "[tier.now]\ntarget = { queue = \"closed\" }\n\
    [tier.order]\ndelay = \"1h\"\ntarget = { queue = \"due\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\ntier = \"order\"\nevent = { tier = \"now\", type = \"order.closed\" }\n\
    [sweep]\nevery = \"1s\"\ngrace = \"1s\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn trace_tells_each_stage_of_an_orders_life() {
    let desk = Desk::new("trace_life", TABLES);
    let db = desk.rig.db().await;
    let shop = format!("{}; grant select, update on orders to {}", super::ORDERS, desk.role);
    db.batch_execute(&shop).await.unwrap();
    db.batch_execute("insert into orders values (4711, 'pending', now())").await.unwrap();
    db.insert(&Row { kind: Some("order.created".into()), ..Row::new("order").key("4711") }).await;
    desk.says(&["trace", "4711"], 0, &["order.created in tier order", "in the outbox: it may go since"]);

    let daemon = Daemon::start(&desk.rig, &desk.toml());
    daemon.wait_ready(START);
    wait_until(secs(20), async || db.count("sent_at is not null").await == 1).await;
    let text = desk.says(
        &["trace", "4711"],
        0,
        &["; in delay queue 'duebox.order.3600000.", "then queue 'due'", "is pending, not overdue before"],
    );
    let queue = text.split('\'').nth(1).unwrap();
    let broker = Inspector::connect(&desk.rig.amqp_url()).await;
    wait_until(secs(20), async || broker.depth(queue).await == Some(1)).await;

    db.batch_execute("update orders set due = now() - interval '2 h'").await.unwrap();
    wait_until(secs(20), async || db.count("type = 'order.closed' and sent_at is not null").await == 1).await;
    let parts = ["is closed; closed by the sweep 2", "order.closed in tier now", "next: nothing to do"];
    desk.says(&["trace", "4711"], 0, &parts);
    wait_until(secs(20), async || broker.depth("closed").await == Some(1)).await;
    drop(daemon);
    desk.says(&["trace", "4711"], 0, &parts);
}
