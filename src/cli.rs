//! The command line.

mod check;
mod config_show;
mod migrate;
mod pause;
mod status;
mod sweep;
mod trace;

use crate::app::build;
use crate::config;
use crate::outbox::connect::Db;
use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;

/// Exit code of a clean end.
pub const OK: u8 = 0;
/// Exit code of any failure that a restart may cure.
pub const FAILED: u8 = 1;
/// Exit code of wrong usage, as clap has it.
pub const MISUSED: u8 = 2;
/// Exit code of a configuration or topology that no restart cures (`EX_CONFIG`).
pub const MISCONFIGURED: u8 = 78;

/// Carries rows from a Postgres outbox table to RabbitMQ, on time and without loss.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Cli {
    /// The configuration file [default: ./relay.toml, then /etc/duebox/relay.toml]
    #[arg(long, short, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Run,
    /// Check the configuration, and with --connect both ends as well
    Check(check::Args),
    /// Create or upgrade the schema, or print the SQL that would
    Migrate(migrate::Args),
    /// Say whether it is flowing, what waits and what is stuck
    Status(status::Args),
    /// Follow one order: its messages, where they are now, its state, and what to do next
    Trace(trace::Args),
    /// Close what is overdue, now and in the foreground
    Sweep(sweep::Args),
    /// Pause something for all relays, over restarts, until it is resumed
    Pause(pause::PauseArgs),
    /// End a pause
    Resume(pause::ResumeArgs),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective configuration and where each value comes from
    Show,
}

/// The database of an operator's command; no connection is made yet.
fn database(config: &config::Config) -> anyhow::Result<Db> {
    Ok(Db::new(build::database(&config.postgres)?, 1)?)
}

/// Runs a one-shot command and returns its exit code.
///
/// # Errors
/// Whatever stops the command; the text says what to do.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Run => Ok(FAILED),
        Command::Check(args) => check::run(&args, cli.config.as_deref()).await,
        Command::Migrate(args) => migrate::run(args, cli.config.as_deref()).await,
        Command::Status(args) => status::run(&args, cli.config.as_deref()).await,
        Command::Trace(args) => trace::run(&args, cli.config.as_deref()).await,
        Command::Sweep(args) => sweep::run(&args, cli.config.as_deref()).await,
        Command::Pause(args) => pause::pause(args, cli.config.as_deref()).await,
        Command::Resume(args) => pause::resume(args, cli.config.as_deref()).await,
        Command::Config(ConfigCommand::Show) => config_show::run(cli.config.as_deref()),
    }
}

/// Prints to standard output. A reader that has gone away (`duebox status | head`) is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Loads the configuration, or prints every problem and gives the exit code.
fn load(path: Option<&std::path::Path>) -> anyhow::Result<Result<config::Loaded, u8>> {
    let loaded = config::load(path);
    if loaded.is_err() {
        print(&config::report(&loaded))?;
    }
    Ok(loaded.map_err(|_| MISCONFIGURED))
}
