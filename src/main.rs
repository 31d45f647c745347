//! The daemon's binary.
fn main() {}
