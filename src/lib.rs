//! duebox carries rows from a Postgres outbox table to RabbitMQ, on time and without loss.

pub mod config;
pub mod tier;
