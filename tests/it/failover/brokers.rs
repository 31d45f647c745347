//! Several brokers: each is tried in its turn, at the start and after every loss.

use crate::support::between::{Between, NOW};
use crate::support::daemon::{Daemon, run_cli};
use crate::support::oracle::Oracle;
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs};

#[tokio::test(flavor = "multi_thread")]
async fn whichever_broker_is_there_is_found() {
    let between = Between::new(Rig::new("brokers"));
    let (first, second) = (&between.rabbit, Proxy::new(between.rig.rabbit().port()));
    first.set(Mode::Reset);
    let server = |port: u16| format!("127.0.0.1:{port}");
    let base = between.rig.relay_base(between.role()).render();
    let line = base.lines().find(|line| line.starts_with("urls = ")).unwrap();
    let url = line.trim_start_matches("urls = [").trim_end_matches(']');
    let rabbit = server(between.rig.rabbit().port());
    let at = |port: u16| url.replace(&rabbit, &server(port));
    let urls = format!("urls = [{}, {}]", at(first.port()), at(second.port()));
    let toml = base.replace(line, &format!("{urls}\nconnect_timeout = \"2s\"\nheartbeat = \"2s\""));
    let daemon = Daemon::start(&between.rig, &format!("{toml}{NOW}"));
    daemon.wait_ready(START);
    let db = between.rig.db().await;
    let mut oracle = Oracle::new(&between.rig, &[("now", "due")]);
    let mut tried = None;
    for (alive, dead) in [(&second, first), (first, &second), (&second, first), (first, &second)] {
        alive.set(Mode::Pass);
        dead.set(Mode::Reset);
        eventually("it is connected to the other", secs(20), || alive.connections() > 0 && dead.connections() == 0);
        daemon.wait_ready(secs(10));
        let (_, status) = daemon.get("/status").unwrap();
        assert!(status.contains(&format!("\"broker\":\"{}\"", server(alive.port()))), "{status}");
        // Only at the start is the dead one tried: whichever broke goes to the end of the row.
        assert_eq!(dead.accepted(), tried.unwrap_or(dead.accepted()), "a loss moves on to the next at once");
        let (code, text, _) = run_cli(&["check", "--connect", "--config", daemon.config().to_str().unwrap()]);
        assert!(code == 1 && text.contains(&server(dead.port())), "the other one is named: {text}");
        db.insert_rows("now", 100).await;
        oracle.settled(&db).await;
        tried = Some(alive.accepted());
    }
    assert_eq!(oracle.duplicates(&db).await, 0);
}
