//! The sweep closes what is overdue, with one event each, and nothing else, whatever happens meanwhile.

mod actions;
mod close;
mod counted;
mod daemon;
mod first_day;
mod guard;
mod inspect;
mod many;
mod one;
mod outage;
mod pairs;
mod pass;
mod policies;
mod race;
mod shop;
mod types;
mod zones;
