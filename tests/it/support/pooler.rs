//! A PgBouncer on loopback in front of a PostgreSQL, in transaction mode: sessions are shared between its clients.

use super::postgres::Postgres;
use super::process::{self, INSTALL, Process};
use super::rig::Rig;
use super::run::{free_port, run};
use super::wait::eventually;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// It refuses to run as root, as the database does.
const ACCOUNT: &str = "postgres";

/// One pooler. Dropping it ends it, and every connection through it.
pub(crate) struct Pooler {
    folder: PathBuf,
    port: u16,
    _process: Process,
}

impl Pooler {
    /// Lets `roles` in, to the server of `rig`, and gives each of them at most `size` sessions a database.
    #[track_caller]
    pub(crate) fn new(rig: &Rig, roles: &[&str], size: u16) -> Self {
        Self::before(rig.postgres(), roles, size)
    }

    #[track_caller]
    fn before(server: &Postgres, roles: &[&str], size: u16) -> Self {
        assert!(Path::new(PROGRAM).exists(), "PgBouncer is missing: {INSTALL}");
        let (folder, port) = (run().folder("pooler"), free_port());
        // Trust asks for no password, but for a name that it knows.
        let users: String = roles.iter().map(|role| format!("\"{role}\" \"\"\n")).collect();
        fs::write(folder.join("users.txt"), users).unwrap();
        fs::write(folder.join("pgbouncer.ini"), ini(&folder, server.port(), port, size)).unwrap();
        process::give_to(ACCOUNT, &folder);
        let log = File::create(folder.join("pooler.log")).unwrap();
        let mut command = process::command_as(ACCOUNT, Path::new(PROGRAM));
        command.arg(folder.join("pgbouncer.ini"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = Process::spawn(&mut command, "TERM");
        let shown = || fs::read_to_string(folder.join("pooler.log")).unwrap_or_default();
        eventually("PgBouncer listens", Duration::from_secs(20), || {
            assert!(process.wait_exit(Duration::ZERO).is_none(), "PgBouncer ended: {}", shown());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { folder, port, _process: process }
    }

    /// Where clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database as a role, through the pooler.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// What it wrote so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("pooler.log")).unwrap_or_default()
    }
}

fn ini(folder: &Path, server: u16, port: u16, size: u16) -> String {
    format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {}\n\
         pool_mode = transaction\ndefault_pool_size = {size}\nmax_client_conn = 500\n",
        folder.join("users.txt").display()
    )
}
