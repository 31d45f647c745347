//! A log that nobody reads holds up nothing, least of all the stop.

use crate::support::daemon::Daemon;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_log_is_not_read_goes_on_and_stops_when_it_is_asked_to() {
    let rig = Rig::new("unread");
    let role = rig.migrated();
    let tables = "[relay]\nmax_attempts = 1\n[tier.events]\ntarget = { exchange = \"amq.topic\" }\n";
    let (mut daemon, unread) = Daemon::start_unread(&rig, &format!("{}{tables}", rig.relay_base(&role).render()));
    daemon.wait_ready(START);
    let db = rig.db().await;
    // A line for each: more than a pipe takes and than wait for a slow reader.
    let insert = "insert into duebox.outbox (tier, routing_key, payload) select 'events', 'nowhere', '{}' from generate_series(1, 6000)";
    db.batch_execute(insert).await.unwrap();
    wait_until(secs(60), async || db.count("parked_at is null").await == 0).await;
    assert_eq!(daemon.get("/healthz").map(|(code, _)| code), Some(200));
    daemon.sigterm();
    assert_eq!(daemon.wait_exit(secs(20)), 0);
    drop(unread);
}
