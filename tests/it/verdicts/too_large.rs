//! A message that the broker itself refuses closes the channel of its whole batch; only the culprit is parked.

use super::{arrivals, repeated};
use crate::support::consumer::Inspector;
use crate::support::rig::{Own, Rig};
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_brokers_own_limit_is_parked_alone_and_its_batch_goes_out() {
    let rig = Rig::private("toolarge", Own::Rabbit);
    // As `max_message_size = 1000000` in rabbitmq.conf; channels read it when they open, from the one or the other.
    rig.rabbit()
        .eval("application:set_env(rabbit, max_message_size, 1000000), persistent_term:put(max_message_size, 1000000)");
    let daemon = rig.relay("[tier.now]\ntarget = { queue = \"now\" }\n[tier.other]\ntarget = { queue = \"other\" }\n");
    let broker = Inspector::connect(&rig.amqp_url()).await;
    let db = rig.db().await;
    let insert = "insert into duebox.outbox (tier, key, body) \
        select 'now', i::text, convert_to(repeat('x', case when i = 50 then 3000000 else 10 end), 'utf8') \
        from generate_series(1, 100) i";
    db.execute(insert, &[]).await.unwrap();
    db.insert_rows("other", 20).await;
    wait_until(secs(40), async || db.count("tier = 'now' and sent_at is null and parked_at is null").await == 0).await;
    let culprit = "parked_at is not null and key = '50' and attempts = 0 and last_error like '%406%'";
    assert_eq!(db.count(&format!("{culprit} and last_error like '%larger than%'")).await, 1);
    assert_eq!(db.count("tier = 'now' and sent_at is not null and attempts = 0").await, 99);
    let came = arrivals(&broker, "now", 99, secs(10)).await;
    assert_eq!(came.len(), 99);
    assert!(repeated(&came) <= 99, "at most the batch that was in flight, once");
    let worst = came.values().max();
    assert!(worst <= Some(&2), "one fault, one repetition, but {worst:?}: {}", daemon.log());
    let others = arrivals(&broker, "other", 20, secs(10)).await;
    assert_eq!((others.len(), repeated(&others)), (20, 0), "the other tier did not notice");
    // And the tier is back to its usual pace.
    db.insert_rows("now", 500).await;
    arrivals(&broker, "now", 500, secs(20)).await;
    daemon.wait_ready(secs(30));
}
