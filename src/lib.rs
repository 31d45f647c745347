#![doc = include_str!("../README.md")]

pub mod app;
pub mod cli;

pub mod relay;
pub mod rule;

pub mod outbox;

pub mod broker;

mod addresses;
pub mod backoff;
pub mod message;
pub mod tier;
pub mod verdict;

pub mod admin;
pub mod config;
pub mod log;
pub mod stop;
pub mod systemd;
pub mod wake;
mod words;
