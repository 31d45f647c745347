//! Tiers take turns, however fast the rows of one keep coming.

use super::SOON;
use crate::support::consumer::Consumer;
use crate::support::db::Row;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_one_tier_does_not_keep_another_waiting() {
    let rig = Rig::new("turns");
    // With one worker there is always a row of the stream when it is back from the last batch.
    let daemon = rig.relay(
        "[relay]\nworkers = 1\n[tier.busy]\ntarget = { queue = \"busy\" }\n[tier.quiet]\ntarget = { queue = \"quiet\" }\n",
    );
    let mut quiet = Consumer::new(&rig.amqp_url(), "quiet").await;
    let over = AtomicBool::new(false);
    let stream = async || {
        let db = rig.db().await;
        while !over.load(Ordering::Relaxed) {
            db.insert_rows("busy", 2).await;
        }
    };
    let sent = || daemon.metric("duebox_confirmed_total{tier=\"busy\"}").unwrap_or(0.0);
    let rare = async {
        let db = rig.db().await;
        let mut late = None;
        wait_until(SOON, async || sent() > 100.0).await;
        for n in 0..5 {
            db.insert(&Row::new("quiet")).await;
            late = late.or(quiet.next(secs(2)).await.is_none().then_some(n));
        }
        over.store(true, Ordering::Relaxed);
        late
    };
    let (.., late) = tokio::join!(stream(), stream(), stream(), stream(), stream(), stream(), stream(), stream(), rare);
    assert_eq!(late, None, "a row waits behind the stream");
}
