//! The database of an operator's command.

use crate::app::build;
use crate::config::Config;
use crate::outbox::connect::{self, Pool, Settings};
use crate::outbox::pauses::{self, Pause};

/// The database that relay.toml names; no connection is made yet.
pub(super) struct Database {
    pub(super) pool: Pool,
    pub(super) settings: Settings,
}

impl Database {
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        let settings = build::database(&config.postgres)?;
        Ok(Self { pool: connect::pool(&settings, 1)?, settings })
    }

    pub(super) async fn pauses(&self) -> anyhow::Result<Vec<Pause>> {
        Ok(pauses::list(&self.pool, &self.settings).await?)
    }
}
