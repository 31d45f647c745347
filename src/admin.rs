//! What the daemon shows of itself.

mod accept;
pub mod flight;
pub mod fresh;
pub mod health;
pub mod http;
pub mod metrics;
pub mod pauses;
pub mod status;
pub mod wakefulness;
