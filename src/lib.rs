//! duebox carries rows from a Postgres outbox table to RabbitMQ, on time and without loss.

pub mod backoff;
pub mod config;
pub mod message;
pub mod outbox;
pub mod tier;
pub mod verdict;
