//! Nothing of a run outlives it, however it went.

use crate::support::run::{self, run};
use crate::support::wait::{eventually, secs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A directory as a run leaves it: named after a process and its start, with recorded pids.
fn run_of(base: &Path, pid: u32, started: u64, recorded: &[&Child]) -> PathBuf {
    let dir = base.join(format!("duebox-it-{pid}-{started}"));
    fs::create_dir_all(dir.join("pids")).unwrap();
    for child in recorded {
        fs::write(dir.join("pids").join(child.id().to_string()), "TERM").unwrap();
    }
    dir
}

/// A process that would wait for ever, with `dir` in its environment as the rig's children have it.
fn idle(dir: &Path) -> Child {
    let mut command = Command::new("cat");
    command.env("RIG_DIR", dir.join("")).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

fn gone(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

#[test]
fn a_crashed_run_is_swept_up_and_others_are_left_alone() {
    let base = run().folder("sweep");
    let me = std::process::id();
    let started = run::started(me).unwrap();
    // Our pid with another start time: the process of that run is gone, its pid was given to us.
    let dead = base.join(format!("duebox-it-{me}-{}", started - 1));
    let mut left_over = idle(&dead);
    let mut stranger = idle(&base);
    let mut ours = idle(&base.join(format!("duebox-it-{me}-{started}")));
    run_of(&base, me, started - 1, &[&left_over, &stranger]);
    let living = run_of(&base, me, started, &[&ours]);
    let unrelated = base.join("duebox-it-notes");
    fs::create_dir(&unrelated).unwrap();

    assert_eq!(run::sweep(&base), std::slice::from_ref(&dead));

    eventually("the left over process ends", secs(5), || gone(&mut left_over));
    assert!(!dead.exists() && living.exists() && unrelated.exists());
    for child in [&mut stranger, &mut ours] {
        assert!(!gone(child), "a process of somebody else was ended");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_watchdog_acts_when_the_test_process_is_gone() {
    let base = run().folder("watchdog");
    let dir = base.join("duebox-it-1-1");
    let mut child = idle(&dir);
    run_of(&base, 1, 1, &[&child]);
    let mut watchdog = run::watchdog(&dir);
    assert!(!gone(&mut child));

    drop(watchdog.stdin.take());

    eventually("the process ends", secs(10), || gone(&mut child));
    assert!(watchdog.wait().unwrap().success());
    assert!(!dir.exists());
}

#[test]
fn ports_are_not_given_twice() {
    assert_ne!(run::free_port(), run::free_port());
}
