//! duebox carries rows from a Postgres outbox table to RabbitMQ, on time and without loss.

pub mod admin;
pub mod backoff;
pub mod broker;
pub mod config;
pub mod message;
pub mod outbox;
pub mod relay;
pub mod stop;
pub mod tier;
pub mod verdict;
pub mod wake;
