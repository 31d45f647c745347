//! The name server of the run's Erlang nodes: one of ours, since the one they start is a daemon that outlives them.

use super::process::{self, Process};
use super::rabbit::ACCOUNT;
use super::run::free_port;
use super::wait::{eventually, secs};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

/// Its port, started at the first call.
pub(crate) fn port() -> u16 {
    static EPMD: OnceLock<(Process, u16)> = OnceLock::new();
    let (_, port) = EPMD.get_or_init(|| {
        let port = free_port();
        let mut command = process::command_as(ACCOUNT, Path::new("/usr/bin/epmd"));
        command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command, "TERM");
        eventually("epmd listens", secs(10), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        (process, port)
    });
    *port
}
