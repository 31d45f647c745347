//! A private PostgreSQL on loopback: one for all the tests, or one for a test that stops and kills it.

use super::process::{self, INSTALL, Process};
use super::run::{free_port, run};
use super::wait::{block_on, eventually};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

const ACCOUNT: &str = "postgres";

/// Roles in `with_password` must show theirs; everybody else on loopback is trusted.
const HBA: &str = "local all all trust\n\
    host all +with_password 127.0.0.1/32 scram-sha-256\n\
    host all all 127.0.0.1/32 trust\n\
    host replication all 127.0.0.1/32 trust\n";

/// One PostgreSQL server.
pub(crate) struct Postgres {
    dir: PathBuf,
    port: u16,
    shared: bool,
    process: Mutex<Option<Process>>,
}

impl Postgres {
    /// The server of all the tests, started at the first call.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::create(true))
    }

    /// A server for one test, gone with the value.
    pub(crate) fn own() -> Self {
        Self::create(false)
    }

    /// A standby of this server, which follows it until it is promoted; gone with the value.
    #[track_caller]
    pub(crate) fn standby(&self) -> Self {
        let primary = self.port.to_string();
        let from =
            ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-h", "127.0.0.1", "-U", "postgres", "-p", &primary];
        let dir = make("pg_basebackup", &from);
        let server = Self { dir, port: free_port(), shared: false, process: Mutex::new(None) };
        server.launch();
        server
    }

    /// Makes a standby the primary, and waits until it is.
    #[track_caller]
    pub(crate) fn promote(&self) {
        self.sql("postgres", "select pg_promote(true, 60)");
    }

    fn create(shared: bool) -> Self {
        let dir = make("initdb", &["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]);
        fs::write(dir.join("data/pg_hba.conf"), HBA).unwrap();
        let server = Self { dir, port: free_port(), shared, process: Mutex::new(None) };
        server.launch();
        server.sql("postgres", "create role with_password");
        server
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database as a role.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs statements as the superuser, from plain and async tests alike.
    #[track_caller]
    pub(crate) fn sql(&self, database: &str, statements: &str) {
        let url = self.url("postgres", database);
        if let Err(error) = block_on(execute(&url, statements)) {
            panic!("{statements}: {error:?}");
        }
    }

    /// The pid of the postmaster; none when it does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.slot().as_ref().map(Process::pid)
    }

    /// Starts it again, on the same port with the same data, and waits until it answers.
    #[track_caller]
    pub(crate) fn start(&self) {
        self.refuse_shared();
        self.launch();
    }

    /// Fast shutdown: sessions are ended, data is flushed.
    #[track_caller]
    pub(crate) fn stop(&self) {
        self.end(Signal::SIGINT);
    }

    /// Immediate shutdown: sessions are cut off in the middle, and the next start recovers.
    #[track_caller]
    pub(crate) fn stop_immediate(&self) {
        self.end(Signal::SIGQUIT);
    }

    #[track_caller]
    fn end(&self, signal: Signal) {
        self.refuse_shared();
        let mut process = self.slot().take().expect("PostgreSQL is running");
        process.signal(signal);
        let status = process.wait_exit(Duration::from_secs(30));
        assert!(status.is_some(), "PostgreSQL did not stop: {}", self.log());
    }

    /// SIGKILL to the postmaster and its children, as in a power cut; the data stays.
    #[track_caller]
    pub(crate) fn kill9(&self) {
        self.refuse_shared();
        let mut process = self.slot().take().expect("PostgreSQL is running");
        let children = process::children(process.pid());
        process.signal(Signal::SIGKILL);
        process.wait_exit(Duration::from_secs(5));
        for child in &children {
            process::send(*child, Signal::SIGKILL);
        }
        // A server that finds children of its predecessor refuses to start.
        eventually("children of the postmaster end", Duration::from_secs(10), || {
            children.iter().all(|pid| super::run::started(*pid).is_none())
        });
    }

    /// `stop` and `start`.
    #[track_caller]
    pub(crate) fn restart(&self) {
        self.stop();
        self.start();
    }

    /// Restarts it so that its log has every statement, with the session it came from.
    #[track_caller]
    pub(crate) fn log_statements(&self) {
        self.sql("postgres", "alter system set log_statement = 'all'");
        self.sql("postgres", "alter system set log_line_prefix = '<%a> '");
        self.restart();
    }

    /// How many statements relays have sent so far. The server's own statistics lag by up to 10 s for sessions that idle.
    pub(crate) fn statements_of_relays(&self) -> usize {
        self.log().lines().filter(|line| line.starts_with("<duebox") && line.contains("> LOG: ")).count()
    }

    /// What the server wrote so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    fn launch(&self) {
        let mut slot = self.slot();
        assert!(slot.is_none(), "PostgreSQL is running already");
        let log = File::options().create(true).append(true).open(self.dir.join("server.log")).unwrap();
        let mut command = process::command_as(ACCOUNT, &bin_dir().join("postgres"));
        command.arg("-D").arg(self.dir.join("data"));
        for setting in self.settings() {
            command.args(["-c", &setting]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = Process::spawn(&mut command, "QUIT");
        let url = self.url("postgres", "postgres");
        eventually("PostgreSQL answers", Duration::from_secs(60), || {
            let gone = process.wait_exit(Duration::ZERO);
            assert!(gone.is_none(), "PostgreSQL ended: {}", self.log());
            block_on(execute(&url, "select 1")).is_ok()
        });
        *slot = Some(process);
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!("port={}", self.port),
            format!("unix_socket_directories={}", self.dir.display()),
            "listen_addresses=127.0.0.1".into(),
            "max_connections=300".into(),
            "max_prepared_transactions=10".into(),
            "shared_buffers=256MB".into(),
            "log_min_messages=warning".into(),
        ]
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap()
    }

    #[track_caller]
    fn refuse_shared(&self) {
        assert!(!self.shared, "this PostgreSQL serves every test: use Rig::private");
    }
}

async fn execute(url: &str, statements: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::select! {
        result = client.batch_execute(statements) => result,
        result = connection => result,
    }
}

/// Makes a folder for a server, with its data in `data` from this program.
#[track_caller]
fn make(program: &str, arguments: &[&str]) -> PathBuf {
    let dir = run().folder("postgres");
    process::give_to(ACCOUNT, &dir);
    let mut command = process::command_as(ACCOUNT, &bin_dir().join(program));
    let output = command.arg("-D").arg(dir.join("data")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    dir
}

/// The folder with the server's programs: version 15, else the newest there is.
fn bin_dir() -> PathBuf {
    const PLACE: &str = "/usr/lib/postgresql";
    let place = process::other_root().map_or_else(|| PathBuf::from(PLACE), |root| root.join(&PLACE[1..]));
    let Ok(versions) = fs::read_dir(place) else {
        panic!("PostgreSQL is missing: {INSTALL}");
    };
    let found = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("postgres").exists() && bin.join("initdb").exists());
    let newest = found.max_by_key(|bin| {
        let version = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok());
        (version == Some(15), version)
    });
    let newest = newest.unwrap_or_else(|| panic!("PostgreSQL is missing: {INSTALL}"));
    // As the server's own root has it.
    let version = newest.components().rev().nth(1).expect("a folder of a version");
    Path::new(PLACE).join(version).join("bin")
}
