//! A message whose consumer dies with it comes again, however often, from a queue that duebox declared.

use super::SOON;
use crate::support::consumer::Consumer;
use crate::support::db::Row;
use crate::support::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_outlives_its_consumers() {
    let rig = Rig::new("redelivered");
    let _daemon = rig.relay("[tier.now]\ntarget = { queue = \"due\" }\n");
    let (_, id) = rig.db().await.insert(&Row::new("now")).await;
    for _ in 0..25 {
        let mut consumer = Consumer::manual(&rig.amqp_url(), "due").await;
        let delivery = consumer.next(SOON).await.expect("it is still there");
        assert_eq!(delivery.message_id, id.to_string());
        consumer.close().await;
    }
}
