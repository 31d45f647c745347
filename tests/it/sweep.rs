//! The sweep closes what is overdue, with one event each, and nothing else, whatever happens meanwhile.

mod actions;
mod close;
mod daemon;
mod guard;
mod inspect;
mod one;
mod outage;
mod pass;
mod race;
mod shop;
mod types;
