//! One test run: its throw-away directory, and what makes sure that nothing outlives it.
//!
//! Every process that the rig starts is recorded in `pids/`. A watchdog (`reap.sh`) ends them and removes the directory
//! when the test process is gone; a run whose watchdog was killed as well is swept up by the next one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

const REAP: &str = include_str!("reap.sh");
const PREFIX: &str = "duebox-it-";

/// The run of this test process.
pub(crate) struct Run {
    dir: PathBuf,
    /// Never read: it acts when the kernel closes its stdin.
    _watchdog: Child,
}

/// The run of this test process, begun at the first call.
pub(crate) fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        sweep(&std::env::temp_dir());
        Run::begin()
    })
}

impl Run {
    fn begin() -> Self {
        let pid = std::process::id();
        let started = started(pid).expect("/proc/self/stat tells when this process started");
        let dir = std::env::temp_dir().join(format!("{PREFIX}{pid}-{started}"));
        fs::create_dir_all(dir.join("pids")).unwrap();
        Self { _watchdog: watchdog(&dir), dir }
    }

    /// The directory of the run.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a new folder in the directory of the run, with a number so that no two are the same.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = self.dir.join(format!("{n}-{name}"));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Records a process for the watchdog, with the signal that ends it best.
    pub(crate) fn record(&self, pid: u32, signal: &str) {
        fs::write(self.pid_file(pid), signal).unwrap();
    }

    /// Takes a process that has ended off the record.
    pub(crate) fn forget(&self, pid: u32) {
        if let Err(error) = fs::remove_file(self.pid_file(pid)) {
            eprintln!("pid {pid} was not on record: {error}");
        }
    }

    fn pid_file(&self, pid: u32) -> PathBuf {
        self.dir.join("pids").join(pid.to_string())
    }
}

/// Starts the watchdog of `dir`, which acts when its stdin is closed.
pub(crate) fn watchdog(dir: &Path) -> Child {
    let mut command = reaper(dir);
    // In a group of its own, so that Ctrl-C ends the tests and leaves it to tidy up.
    command.stdin(Stdio::piped()).process_group(0);
    command.spawn().unwrap()
}

/// Ends the processes of crashed runs under `base` and removes their directories; returns these.
pub(crate) fn sweep(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).unwrap().flatten().map(|e| e.path());
    let dead: Vec<PathBuf> = entries.filter(|path| is_ours(path) && is_leftover(path)).collect();
    for dir in &dead {
        // The watchdog of a run that has just ended may be at it as well; whoever comes second finds less to do.
        let status = reaper(dir).stdin(Stdio::null()).status().unwrap();
        if !status.success() {
            eprintln!("sweeping {}: {status}", dir.display());
        }
    }
    dead
}

/// Runs of other users are theirs to sweep up.
fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw())
}

/// Whether `path` is the directory of a run whose process is gone. The start time is part of the name, because a pid
/// alone may have been given to another process since.
fn is_leftover(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    let Some((pid, start)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    match (pid.parse(), start.parse::<u64>()) {
        (Ok(pid), Ok(start)) => started(pid) != Some(start),
        _ => false,
    }
}

/// When a process started, in clock ticks since boot; none when there is no such process.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name, in parentheses, and may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

fn reaper(dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", REAP, "sh"]).arg(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A port on loopback that nobody listens on.
///
/// Not port 0: the kernel gives those out of the range it also takes outgoing ports from, and a server that needs
/// seconds to start would find its port taken by some client of another test.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 10_100;
    const COUNT: u32 = 22_000;
    let offset = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let n = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + offset.wrapping_add(n) % COUNT;
        let port = u16::try_from(port).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on loopback");
}
