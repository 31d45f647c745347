//! The sweep closes what is overdue, with one event each, and nothing else, whatever happens meanwhile.

mod actions;
mod close;
mod counted;
mod daemon;
mod ended;
mod first_day;
mod guard;
mod inspect;
mod locked;
mod many;
mod one;
mod outage;
mod pairs;
mod pass;
mod policies;
mod race;
mod shop;
mod stubborn;
mod types;
mod zones;
