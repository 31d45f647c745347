//! The real binary as a child process: `duebox run` and the one-shot commands.

use super::http;
use super::process::{self, Process};
use super::rig::Rig;
use super::run::run;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_duebox");

/// Options of `unshare` for a process namespace whose process 1 ends with its parent.
const NAMESPACE: [&str; 3] = ["--pid", "--fork", "--kill-child"];

/// The same for whoever is not root: in a user namespace, where it may make others.
const UNPRIVILEGED: [&str; 2] = ["--user", "--map-current-user"];

/// A running `duebox run`. Dropping it kills it.
pub(crate) struct Daemon {
    process: Process,
    /// It is process 1 of its namespace, and `process` is its parent.
    first: bool,
    admin_port: u16,
    config: PathBuf,
    log: Arc<Mutex<String>>,
    /// Those who read what it writes; they end after it.
    readers: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Starts the daemon with this relay.toml; does not wait for it to be ready.
    #[track_caller]
    pub(crate) fn start(rig: &Rig, toml: &str) -> Self {
        Self::start_with(rig, toml, &[])
    }

    /// The same with environment variables, for settings and secrets that come that way.
    #[track_caller]
    pub(crate) fn start_with(rig: &Rig, toml: &str, env: &[(&str, &str)]) -> Self {
        let folder = run().folder("daemon");
        let mut command = command(BINARY, &folder);
        command.envs(env.iter().copied());
        Self::spawn(rig, &folder, toml, command, Stdio::piped())
    }

    /// The same with a log that nobody reads while the pipe that is returned is kept.
    #[track_caller]
    pub(crate) fn start_unread(rig: &Rig, toml: &str) -> (Self, PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        let folder = run().folder("daemon");
        (Self::spawn(rig, &folder, toml, command(BINARY, &folder), writer.into()), reader)
    }

    /// The same as process 1 of a namespace of its own, as in a container. Its pid is then that of its parent, which
    /// waits for it and ends with its code.
    #[track_caller]
    pub(crate) fn start_first(rig: &Rig, toml: &str) -> Self {
        let folder = run().folder("daemon");
        let mut command = command("unshare", &folder);
        command.args(namespace()).arg(BINARY);
        Self { first: true, ..Self::spawn(rig, &folder, toml, command, Stdio::piped()) }
    }

    /// Whether this machine makes process namespaces.
    pub(crate) fn can_be_first() -> bool {
        Command::new("unshare").args(namespace()).arg("true").output().is_ok_and(|done| done.status.success())
    }

    #[track_caller]
    fn spawn(rig: &Rig, folder: &Path, toml: &str, mut command: Command, stderr: Stdio) -> Self {
        let config = folder.join("relay.toml");
        fs::write(&config, toml).unwrap();
        command.arg("run").arg("--config").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut process = Process::spawn(&mut command, "KILL");
        let log = Arc::default();
        let (stdout, stderr) = (process.child().stdout.take(), process.child().stderr.take());
        let readers = [stdout.map(|pipe| capture(pipe, &log)), stderr.map(|pipe| capture(pipe, &log))];
        let readers = readers.into_iter().flatten().collect();
        let admin_port = admin_port(toml);
        eprintln!("{}: daemon {} with {}", rig.name(), process.pid(), config.display());
        Self { process, first: false, admin_port, config, log, readers }
    }

    /// Its relay.toml, for a test that changes it and sends SIGHUP.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Everything it wrote so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line with `text` in it and returns the first.
    #[track_caller]
    pub(crate) fn wait_log(&self, text: &str, within: Duration) -> String {
        let mut found = None;
        self.watch(&format!("a log line with {text:?}"), within, || {
            found = self.log().lines().find(|line| line.contains(text)).map(str::to_owned);
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until `/readyz` says 200.
    #[track_caller]
    pub(crate) fn wait_ready(&self, within: Duration) {
        self.watch("ready", within, || self.status("/readyz") == Some(200));
    }

    /// Waits until `/readyz` answers something other than 200.
    #[track_caller]
    pub(crate) fn wait_unready(&self, within: Duration) {
        self.watch("not ready", within, || self.status("/readyz").is_some_and(|code| code != 200));
    }

    /// GET on the admin port: status and body; none while it does not answer.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        http::get(self.admin_port, path).ok()
    }

    /// A sample of `/metrics` by its exact name and labels as printed; none when absent.
    pub(crate) fn metric(&self, name_with_labels: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics")?;
        let mut samples = text.lines().filter_map(|line| line.rsplit_once(' '));
        let (_, value) = samples.find(|(name, _)| *name == name_with_labels)?;
        value.parse().ok()
    }

    /// Asks it to stop.
    pub(crate) fn sigterm(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Kills it.
    pub(crate) fn kill9(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Freezes it.
    pub(crate) fn sigstop(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn sigcont(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Sends any signal.
    pub(crate) fn signal(&self, signal: Signal) {
        match self.first {
            false => self.process.signal(signal),
            true => process::children(self.pid()).into_iter().for_each(|child| process::send(child, signal)),
        }
    }

    /// Waits for its end and returns the exit code; 128 + n when signal n ended it.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, within: Duration) -> i32 {
        let status = self.process.wait_exit(within);
        let status = status.unwrap_or_else(|| panic!("still running after {within:?}:\n{}", self.log()));
        // Its last words are read only after its end.
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        code(status)
    }

    /// The most memory it ever had resident.
    pub(crate) fn vm_hwm_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    /// The memory it has resident now.
    pub(crate) fn vm_rss_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, what: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The CPU time it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        // USER_HZ, 100 on every Linux.
        Duration::from_millis(ticks * 10)
    }

    fn status(&self, path: &str) -> Option<u16> {
        self.get(path).map(|(status, _)| status)
    }

    /// As `eventually`, with the log in the failure.
    #[track_caller]
    fn watch(&self, what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + within;
        while !holds() {
            let late = std::time::Instant::now() >= deadline;
            assert!(!late, "not within {within:?}: {what}; the daemon's log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs a one-shot command to its end: exit code, stdout, stderr.
pub(crate) fn run_cli(args: &[&str]) -> (i32, String, String) {
    run_cli_with(args, &[])
}

/// The same with environment variables. A relay.toml is looked for in an empty folder unless `--config` is given.
pub(crate) fn run_cli_with(args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    let output = command(BINARY, &run().folder("cli")).args(args).envs(env.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (code(output.status), text(&output.stdout), text(&output.stderr))
}

impl Rig {
    /// Applies the migrations to the test's database, as its owner, with grants to roles if any:
    /// `&["--grant-relay", &role]`.
    #[track_caller]
    pub(crate) fn migrate(&self, grants: &[&str]) {
        let url = self.postgres_url();
        let (code, _, stderr) = run_cli(&[&["migrate", "--url", &url], grants].concat());
        assert_eq!(code, 0, "duebox migrate: {stderr}");
    }
}

fn namespace() -> impl Iterator<Item = &'static str> {
    let user = if geteuid().is_root() { &[][..] } else { &UNPRIVILEGED };
    user.iter().chain(&NAMESPACE).copied()
}

/// A program in `folder`, without settings from the environment of the test run.
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("NO_COLOR", "1");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DUEBOX_") || name.starts_with("PG")) {
        command.env_remove(name);
    }
    command
}

fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
}

/// Collects lines into `log` until the stream ends.
fn capture(stream: impl Read + Send + 'static, log: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push_str(&String::from_utf8_lossy(&line));
            log.push('\n');
        }
    })
}

/// The port of `[admin] listen`.
fn admin_port(toml: &str) -> u16 {
    let mut lines = toml.lines().skip_while(|line| line.trim() != "[admin]");
    let listen = lines.find_map(|line| line.trim().strip_prefix("listen")).expect("[admin] listen");
    listen.rsplit_once(':').unwrap().1.trim_end_matches('"').parse().unwrap()
}
