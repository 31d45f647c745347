//! Readers that say nothing, or are gone without a word, take nothing away from the others.

use crate::support::between::NOW;
use crate::support::daemon::Daemon;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs};
use std::net::TcpStream;

/// How many connections a local port has.
fn accepted(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets.filter(|fields| fields.get(1) == Some(&local.as_str()) && fields[3] == "01").count()
}

#[test]
fn silent_readers_keep_nobody_waiting_and_are_not_kept_for_ever() {
    let rig = Rig::new("readers");
    let role = rig.migrated();
    let base = rig.relay_base(&role);
    let daemon = Daemon::start(&rig, &format!("{}{}", base.render(), NOW));
    daemon.wait_ready(START);
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", base.admin_port)).unwrap()).collect();
    eventually("as many as there is room for are kept", secs(20), || accepted(base.admin_port) == 64);
    for path in ["/healthz", "/readyz", "/metrics", "/status"] {
        assert_eq!(daemon.get(path).map(|(code, _)| code), Some(200), "{path}");
    }
    eventually("none of them for ever", secs(90), || accepted(base.admin_port) == 0);
    drop(silent);
}
