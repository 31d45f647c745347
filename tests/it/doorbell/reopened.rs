//! A tier that was closed, because its delay queue was not what it must be, and is mended: its rows rang long ago.

use super::{AT_ONCE, NEVER, asleep};
use crate::support::consumer::{Consumer, Inspector, quorum};
use crate::support::daemon::Daemon;
use crate::support::db::Row;
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{eventually, secs, wait_until};
use lapin::options::QueueDeclareOptions;

const SLOW: &str = "[tier.slow]\ndelay = \"1s\"\nqueue = \"slow\"\ntarget = { queue = \"due\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_tier_that_reopens_leaves_although_the_relay_sleeps() {
    let rig = Rig::new("reopened");
    let role = rig.migrated();
    let base = Base { rabbitmq: "topology_check = \"500ms\"\n".to_owned(), ..rig.relay_base(&role) };
    let daemon = Daemon::start(&rig, &format!("{}{NEVER}{SLOW}", base.render()));
    daemon.wait_ready(START);
    let broker = Inspector::connect(&rig.amqp_url()).await;
    // A check of the relay may come in between and declare the right one again.
    wait_until(secs(10), async || {
        broker.delete_queue("slow").await;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        broker.channel().await.queue_declare("slow".into(), durable, quorum()).await.is_ok()
    })
    .await;
    let closed = || daemon.get("/readyz").is_some_and(|(_, text)| text.contains("exists with other arguments"));
    eventually("the relay has seen it", secs(10), closed);
    rig.db().await.insert(&Row::new("slow")).await;
    asleep(&daemon);
    broker.delete_queue("slow").await;
    let mut due = Consumer::new(&rig.amqp_url(), "due").await;
    due.next(AT_ONCE + secs(5)).await.expect("the relay is woken when the tier reopens");
}
