//! `wake = "notify"` beside a pooler: LISTEN has a direct connection of its own, everything else is pooled.

use super::{Pooled, found};
use crate::support::daemon::Daemon;
use crate::support::oracle::Oracle;
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn with_a_direct_listen_url_a_row_wakes_the_relay_although_it_hardly_polls() {
    let pooled = Pooled::new("pooled_listen");
    let rig = &pooled.rig;
    let mut base = pooled.base();
    base.postgres = format!("listen_url = \"{}\"", rig.postgres_url_as(&pooled.role));
    let tables = "[outbox]\npoll = \"1h\"\n\n[tier.now]\ntarget = { queue = \"due\" }\n";
    let daemon = Daemon::start(rig, &format!("{}{tables}", base.render()));
    daemon.wait_ready(START);
    let (db, superuser) = (rig.db().await, rig.db_as("postgres").await);
    let listening = "select count(*) from pg_stat_activity where application_name = 'duebox listen' and state = 'idle'";
    wait_until(secs(10), async || superuser.query_one(listening, &[]).await.unwrap().get::<_, i64>(0) == 1).await;
    let mut oracle = Oracle::new(rig, &[("now", "due")]);
    for _ in 0..10 {
        db.insert_rows("now", 1).await;
        wait_until(secs(5), async || db.count("sent_at is null").await == 0).await;
    }
    assert_eq!(oracle.duplicates(&db).await, 0);
    let expected = found(&rig.db_as(&pooled.role).await).await;
    assert_eq!(found(&pooled.neighbour().await).await, expected);
    pooled.assert_nothing_prepared(&daemon.log());
}
