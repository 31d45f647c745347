//! The closer closes an order when its message falls due, and loses no message, whatever the message or the outage.

mod alarm;
mod checks;
mod closes;
mod deadlock;
mod early;
mod far;
mod foreign;
mod locked;
mod outage;
mod parked;
mod paused;
mod race;
mod raised;
mod shop;
mod stop;
