//! `duebox migrate`: apply the schema, or print it.

use super::{MISCONFIGURED, OK, print};
use crate::config::{self, ConfigError};
use crate::outbox::connect::{self, Settings};
use crate::outbox::migrate::{self, Grants, Trigger};
use anyhow::Context;
use std::path::Path;
use std::time::Duration;

/// Options of `migrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the SQL for psql instead of applying it
    #[arg(long)]
    print: bool,
    /// URL of the schema's owner [default: postgres.url of the configuration]
    #[arg(long, value_name = "URL", env = "DUEBOX_MIGRATE_URL", hide_env_values = true)]
    url: Option<String>,
    /// The schema [default: postgres.schema of the configuration, else duebox]
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// Grant this role what an application needs (may be repeated)
    #[arg(long, value_name = "ROLE")]
    grant_producer: Vec<String>,
    /// Grant this role what the daemon needs (may be repeated)
    #[arg(long, value_name = "ROLE")]
    grant_relay: Vec<String>,
    /// No trigger on the outbox: relays poll (for producers that use PREPARE TRANSACTION); kept until --doorbell
    #[arg(long, conflicts_with = "doorbell")]
    no_doorbell: bool,
    /// Inserts wake the relays again, after --no-doorbell
    #[arg(long)]
    doorbell: bool,
}

impl Args {
    fn trigger(&self) -> Trigger {
        match (self.doorbell, self.no_doorbell) {
            (true, _) => Trigger::On,
            (_, true) => Trigger::Off,
            _ => Trigger::Keep,
        }
    }
}

/// A migration may build an index on a large table; its owner watches it.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) async fn run(args: Args, path: Option<&Path>) -> anyhow::Result<u8> {
    let trigger = args.trigger();
    let grants = Grants { producers: args.grant_producer, relays: args.grant_relay };
    // The file is needed only for what the command line does not say; then a bad one is an error, or the wrong schema
    // would be migrated.
    let loaded = match (&args.url, args.print, &args.schema) {
        (Some(_), _, Some(_)) | (_, true, Some(_)) => None,
        _ => match config::load(path) {
            Err(ConfigError::NotFound { .. }) => None,
            Ok(loaded) => Some(loaded),
            bad => {
                print(&config::report(&bad))?;
                return Ok(MISCONFIGURED);
            }
        },
    };
    let from_file = loaded.as_ref().map(|loaded| &loaded.config.postgres);
    let schema = args.schema.or_else(|| from_file.map(|postgres| postgres.schema.clone()));
    let schema = schema.unwrap_or_else(|| "duebox".to_owned());
    if args.print {
        print(&migrate::script(&schema, &grants, trigger)?)?;
        return Ok(OK);
    }
    // The password of the configuration is the daemon's, not that of an owner named on the command line.
    let (url, password) = match (args.url, from_file) {
        (Some(url), _) => (url.into(), None),
        (None, Some(postgres)) => (postgres.url.clone(), postgres.password()?),
        (None, None) => anyhow::bail!(
            "no database named: give --url postgres://OWNER@HOST/DATABASE, or a configuration with postgres.url"
        ),
    };
    let connect_timeout = Duration::from_secs(10);
    let settings = Settings { url, password, schema: schema.clone(), connect_timeout, statement_timeout: PATIENCE };
    let applied = connect::with_alone(&settings, "duebox migrate", async |client| {
        migrate::apply(client, &schema, &grants, trigger).await.map_err(anyhow::Error::from)
    });
    let applied = applied.await.context("migrate as the schema's owner: --url postgres://OWNER@HOST/DATABASE")?;
    let granted =
        |what: &str, roles: &[String]| roles.iter().map(|role| format!("granted {what} rights to {role}\n")).collect();
    let producers: String = granted("producer", &grants.producers);
    let relays: String = granted("relay", &grants.relays);
    print(&format!("{applied}\n{producers}{relays}"))?;
    Ok(OK)
}
