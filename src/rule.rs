//! Rules: which orders are overdue, and what happens to them then.
//!
//! ```text
//! sweep:  take the pass ─▶ find (no locks) ─▶ [ lock (skip locked) ─▶ close + event ] ─▶ find ... ─▶ end the pass
//!                                              one READ COMMITTED transaction
//! ```
//!
//! The two statements in brackets decide alone: a paid order is never closed, whoever names it to them and whenever. The
//! clock is the database's.

mod close;
mod closer;
mod closing;
mod expressions;
mod orders;
mod pass;
pub mod port;
mod probe;
mod size;
mod statements;
mod statuses;
mod sweep;
mod table;
mod tell;
mod terms;
mod trace;

pub use close::{PATIENCE, one};
pub use closer::{Closer, consumed};
pub use closing::{Closed, Closing, Kept};
pub use orders::{Findings, Orders, inspect, prepare};
pub use sweep::{Hears, Sweep, Told, holders};
pub use tell::FAILED;
pub(crate) use tell::utc;
pub use trace::{Order, Seen, trace};
