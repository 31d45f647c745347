//! Several servers in one URL.

use crate::support::between::Between;
use crate::support::daemon::Daemon;
use crate::support::oracle::Oracle;
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_and_says_nothing_does_not_keep_the_relay_from_the_next() {
    let between = Between::new(Rig::new("frozen_server"));
    let frozen = Proxy::new(between.rig.postgres().port());
    frozen.set(Mode::FreezeAccept);
    let base = between.rig.relay_base(between.role()).render();
    let server = |port: u16| format!("127.0.0.1:{port}");
    let both = format!("{},{}", server(frozen.port()), server(between.postgres.port()));
    let toml = base.replacen(&server(between.rig.postgres().port()), &both, 1);
    let toml = toml.replacen("[postgres]", "[postgres]\nconnect_timeout = \"1s\"", 1);
    let daemon = Daemon::start(&between.rig, &format!("{toml}[tier.now]\ntarget = {{ queue = \"due\" }}\n"));
    daemon.wait_ready(START);
    assert!(frozen.accepted() > 0, "the first one was tried");
    let db = between.rig.db().await;
    db.insert_rows("now", 100).await;
    let oracle = Oracle::new(&between.rig, &[("now", "due")]);
    oracle.settled(&db).await;
    // With neither, each is named with its own reason.
    between.postgres.set(Mode::Reset);
    let named = [format!("at {}, database", server(frozen.port())), "no answer within 1s; at 127.0.0.1".to_owned()];
    eventually("both are named", secs(20), || {
        let (code, text) = daemon.get("/readyz").unwrap_or_default();
        code == 503 && text.lines().any(|line| named.iter().all(|part| line.contains(part)))
    });
    between.postgres.set(Mode::Pass);
    db.insert_rows("now", 100).await;
    oracle.settled(&db).await;
}
