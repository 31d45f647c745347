//! The notify protocol, over a real datagram socket.

use crate::support::daemon::Daemon;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::secs;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// What systemd would have been told.
struct Manager {
    socket: UnixDatagram,
    told: Vec<String>,
}

impl Manager {
    /// Reads until a line begins like this.
    fn wait(&mut self, start: &str, within: Duration) -> String {
        let deadline = Instant::now() + within;
        let mut buffer = [0; 4096];
        loop {
            assert!(Instant::now() < deadline, "not within {within:?}: {start}; told {:?}", self.told);
            let Ok(n) = self.socket.recv(&mut buffer) else { continue };
            let lines: Vec<String> = String::from_utf8_lossy(&buffer[..n]).lines().map(str::to_owned).collect();
            self.told.extend(lines.iter().cloned());
            if let Some(line) = lines.iter().find(|line| line.starts_with(start)) {
                return line.clone();
            }
        }
    }
}

#[test]
fn systemd_is_told_ready_status_watchdog_and_stopping() {
    let rig = Rig::new("systemd");
    let role = rig.migrated();
    let path = rig.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut manager = Manager { socket, told: Vec::new() };
    let toml = format!("{}[tier.now]\ntarget = {{ queue = \"now\" }}\n", rig.relay_base(&role).render());
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "30000000")];
    let mut daemon = Daemon::start_with(&rig, &toml, &env);
    manager.wait("READY=1", START);
    assert_eq!(daemon.get("/healthz").map(|(code, _)| code), Some(200), "ready is said when the loops run");
    // The worst of what there is to say, in one line.
    manager.wait("STATUS=relaying; consumers of tier now: nobody consumes the target queue", START);
    manager.wait("WATCHDOG=1", secs(10));
    daemon.sigterm();
    manager.wait("STOPPING=1", secs(10));
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
    let ready = manager.told.iter().filter(|line| *line == "READY=1").count();
    assert_eq!(ready, 1, "{:?}", manager.told);
}
