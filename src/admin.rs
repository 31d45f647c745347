//! What the daemon shows of itself.

pub mod health;
pub mod metrics;
