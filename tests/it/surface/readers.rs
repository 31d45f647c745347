//! Readers that say nothing, or are gone without a word, take nothing away from the others.

use crate::support::between::NOW;
use crate::support::daemon::Daemon;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs};
use std::net::TcpStream;

/// How many sockets of a local port have been accepted, and for how many of them the kernel's keepalive clock runs.
fn accepted(port: u16) -> (usize, usize) {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = sockets.filter(|fields| fields.get(1) == Some(&local.as_str()) && fields[3] == "01");
    let timers: Vec<bool> = ours.map(|fields| fields[5].starts_with("02:")).collect();
    (timers.len(), timers.iter().filter(|kept| **kept).count())
}

#[test]
fn silent_readers_keep_nobody_waiting_and_those_that_vanish_are_noticed() {
    let rig = Rig::new("readers");
    let role = rig.migrated();
    let base = rig.relay_base(&role);
    let daemon = Daemon::start(&rig, &format!("{}{}", base.render(), NOW));
    daemon.wait_ready(START);
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", base.admin_port)).unwrap()).collect();
    eventually("as many as there is room for are kept, and watched", secs(20), || {
        let (there, watched) = accepted(base.admin_port);
        there == 64 && watched == there
    });
    for path in ["/healthz", "/readyz", "/metrics", "/status"] {
        assert_eq!(daemon.get(path).map(|(code, _)| code), Some(200), "{path}");
    }
    eventually("none of them is kept for ever", secs(90), || accepted(base.admin_port).0 == 0);
    drop(silent);
}
