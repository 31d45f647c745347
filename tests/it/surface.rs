//! What the daemon shows to the outside: HTTP on `[admin]`, and systemd.

mod http;
mod readers;
mod systemd;
mod useless;
