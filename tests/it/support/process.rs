//! Child processes: recorded for the watchdog, signalled by pid, never left behind.

use super::run::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A running child. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `command`; `signal` is what the watchdog would end it with.
    pub(crate) fn spawn(command: &mut Command, signal: &str) -> Self {
        command.env("RIG_DIR", run().dir().join(""));
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        run().record(child.id(), signal);
        Self { child }
    }

    /// The operating system's id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Signals it.
    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end; none when it still runs after `within`.
    pub(crate) fn wait_exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if !ended && let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            eprintln!("pid {}: {error}", self.pid());
        }
        run().forget(self.pid());
    }
}

/// Sends a signal to a pid; a process that has gone meanwhile is no mistake.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    match kill(pid, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(error) => panic!("kill -{signal} {pid}: {error}"),
    }
}

/// The direct children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// The root folder of another Debian, whose servers are used then; it sees this machine's folder for temporary files.
pub(crate) fn other_root() -> Option<PathBuf> {
    std::env::var_os("DUEBOX_TEST_ROOT").map(PathBuf::from)
}

/// A program of another Debian, as the account that has that name here.
fn command_in(root: &Path, account: &str, program: &Path) -> Command {
    let user = User::from_name(account).unwrap().unwrap_or_else(|| panic!("no user {account}: {INSTALL}"));
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={}:{}", user.uid, user.gid)).arg("--groups=").arg(root).arg(program);
    command
}

/// A command with a clean environment, as `account` when the tests run as root (both servers dislike root), else as
/// whoever runs the tests.
pub(crate) fn command_as(account: &str, program: &Path) -> Command {
    let other = other_root().filter(|root| root.join(program.strip_prefix("/").unwrap_or(program)).exists());
    let mut command = if let Some(root) = other {
        command_in(&root, account, program)
    } else if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", account, "--regid", account, "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env_clear().envs([("PATH", "/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C.UTF-8")]);
    command.current_dir(run().dir());
    command
}

/// Gives a folder or file to `account` when the tests run as root.
pub(crate) fn give_to(account: &str, path: &Path) {
    if !geteuid().is_root() {
        return;
    }
    let user = User::from_name(account).unwrap().unwrap_or_else(|| panic!("no user {account}: {INSTALL}"));
    nix::unistd::chown(path, Some(user.uid), Some(user.gid)).unwrap();
}

/// What a run without its servers is told.
pub(crate) const INSTALL: &str = "install the servers with `apt-get install -y postgresql rabbitmq-server pgbouncer`";
