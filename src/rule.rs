//! Rules: which orders are overdue, and what happens to them then.
//!
//! ```text
//! sweep:   take the pass ─▶ find (no locks) ─▶ [ lock those that are free ─▶ close + event ] ─▶ find ... ─▶ end the pass
//! closer:  a message ───────────────────────▶ [ lock it, waiting a little ─▶ close + event ] ─▶ ack
//!                                               one READ COMMITTED transaction
//! ```
//!
//! What is in brackets decides alone: a paid order is never closed, whoever names it to them and whenever. The
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
