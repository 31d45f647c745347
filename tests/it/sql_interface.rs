//! The SQL interface keeps its promises: to producers, to the relay's role, and to whoever migrates.

mod cancel;
mod enqueue;
mod indexes;
mod migrate;
mod requeue;
mod rig;
mod rights;
mod table;
