//! The rig: private servers, faults between them and the daemon, and eyes on both ends.

pub(crate) mod between;
pub(crate) mod consumer;
pub(crate) mod daemon;
pub(crate) mod db;
pub(crate) mod epmd;
pub(crate) mod http;
pub(crate) mod oracle;
pub(crate) mod pooler;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quiet;
pub(crate) mod rabbit;
pub(crate) mod relay;
pub(crate) mod rig;
pub(crate) mod run;
pub(crate) mod wait;
