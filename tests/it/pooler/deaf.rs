//! LISTEN through a transaction pooler hears nothing: that is found out and said, and no lock is left on a session that
//! is somebody else's a moment later.

use super::{Pooled, found};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::relay::START;
use crate::support::wait::{secs, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_listens_through_a_pooler_says_so_and_polls() {
    let pooled = Pooled::new("pooled_deaf");
    let rig = &pooled.rig;
    let toml =
        format!("{}[outbox]\npoll = \"200ms\"\n[tier.now]\ntarget = {{ queue = \"due\" }}\n", pooled.base().render());
    let daemon = Daemon::start(rig, &toml);
    let line = daemon.wait_log("nothing rung is heard on the LISTEN connection", START);
    assert!(line.contains("postgres.listen_url") && line.contains("wake = \"poll\""), "{line}");
    daemon.wait_ready(START);
    let (code, said, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
    assert_eq!(code, 0, "it works, by polling: {said}");
    assert!(said.contains("nothing rung is heard"), "{said}");
    let db = rig.db().await;
    for _ in 0..5 {
        db.insert_rows("now", 10).await;
        wait_until(secs(10), async || db.count("sent_at is null").await == 0).await;
    }
    let expected = found(&rig.db_as(&pooled.role).await).await;
    for _ in 0..4 {
        // Whichever session the pooler gives: no setting and no lock of ours is on it.
        assert_eq!(found(&pooled.neighbour().await).await, expected);
    }
    pooled.assert_nothing_prepared(&daemon.log());
}
