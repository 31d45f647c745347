//! The Postgres side of the relay. Only this module and `rule` name the driver.

pub mod migrate;
