//! A connection that is reset again and again is made again each time, and nothing is left over from the old ones.

mod broker;
mod late;
mod postgres;

use crate::support::daemon::Daemon;
use std::fmt;

/// How many resets: some in `make test`, more when `benches/resets.sh` says so.
fn rounds(usual: usize) -> usize {
    std::env::var("RESETS").map_or(usual, |rounds| rounds.parse().unwrap())
}

/// What a leak would show in.
#[derive(Clone, Copy, Debug)]
struct Use {
    threads: usize,
    descriptors: usize,
    resident_kib: u64,
}

impl Use {
    fn of(daemon: &Daemon) -> Self {
        let folder = |name| std::fs::read_dir(format!("/proc/{}/{name}", daemon.pid())).unwrap().count();
        Self { threads: folder("task"), descriptors: folder("fd"), resident_kib: daemon.vm_rss_kib() }
    }

    /// Asserts that it has not grown since `before`; of the few threads and descriptors that there are, some come and go.
    #[track_caller]
    fn assert_flat_since(&self, before: &Self) {
        let said = format!("before {before}, after {self}");
        assert!(self.threads <= before.threads + 2, "{said}");
        assert!(self.descriptors <= before.descriptors + 4, "{said}");
        self.assert_small_since(before);
    }

    /// Asserts that its memory has not grown by more than a tenth since `before`, or a few MiB: of a process as small as
    /// this a tenth is what the allocator may keep.
    #[track_caller]
    fn assert_small_since(&self, before: &Self) {
        const NOISE_KIB: u64 = 4 * 1024;
        let most = before.resident_kib + NOISE_KIB.max(before.resident_kib / 10);
        assert!(self.resident_kib <= most, "before {before}, after {self}");
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, descriptors, resident_kib } = self;
        write!(f, "{threads} threads, {descriptors} descriptors, {resident_kib} KiB")
    }
}
