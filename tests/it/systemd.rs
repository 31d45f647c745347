//! What systemd is told: ready whatever the outages, how it is, and that every loop makes progress.

use crate::support::daemon::Daemon;
use crate::support::rig::Rig;
use crate::support::run::free_port;
use crate::support::wait::secs;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

/// systemd's end of the socket.
struct Systemd {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Systemd {
    /// Waits until a line that begins so has come.
    #[track_caller]
    fn hear(&mut self, start: &str) -> String {
        let deadline = Instant::now() + secs(20);
        let mut buffer = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{start:?} did not come, but {:?}", self.heard);
            self.socket.set_read_timeout(Some(left)).unwrap();
            let Ok(length) = self.socket.recv(&mut buffer) else { continue };
            let lines = String::from_utf8_lossy(&buffer[..length]).into_owned();
            self.heard.extend(lines.lines().map(str::to_owned));
            if let Some(line) = lines.lines().find(|line| line.starts_with(start)) {
                return line.to_owned();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_hears_ready_status_watchdog_and_stopping_though_the_broker_is_away() {
    let rig = Rig::new("systemd");
    let relay = rig.create_role("relay");
    rig.migrate(&["--grant-relay", &relay]);
    let path = rig.folder().join("notify");
    let mut systemd = Systemd { socket: UnixDatagram::bind(&path).unwrap(), heard: Vec::new() };
    let mut base = rig.relay_base(&relay);
    base.rabbit_port = free_port();
    let toml = format!("{}[tier.now]\ntarget = {{ queue = \"q\" }}\n", base.render());
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "30000000")];
    let mut daemon = Daemon::start_with(&rig, &toml, &env);
    systemd.hear("READY=1");
    let status = systemd.hear("STATUS=");
    assert!(status.starts_with("STATUS=rabbitmq: "), "{status}");
    systemd.hear("WATCHDOG=1");
    systemd.hear("WATCHDOG=1");
    daemon.sigterm();
    systemd.hear("STOPPING=1");
    assert_eq!(daemon.wait_exit(secs(20)), 0, "{}", daemon.log());
}
