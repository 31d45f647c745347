//! The rig does what it says, so that a red test elsewhere means the daemon.

mod faults;
mod leftovers;
mod servers;
