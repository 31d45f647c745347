//! `duebox config show`.

use super::{OK, load, print};
use crate::config;
use std::path::Path;

pub(super) fn run(path: Option<&Path>) -> anyhow::Result<u8> {
    match load(path)? {
        Ok(loaded) => {
            print(&config::render(&loaded))?;
            Ok(OK)
        }
        Err(code) => Ok(code),
    }
}
