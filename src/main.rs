//! The binary: arguments, configuration, log, application, exit code.

use clap::Parser;
use duebox::app::{self, Ended};
use duebox::cli::{self, Cli, Command};
use duebox::{config, log};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = if matches!(cli.command, Command::Run) { daemon(&cli) } else { one_shot(cli) };
    let code = done.unwrap_or_else(|error| {
        // The whole chain, once: what was being done, and what stopped it.
        complain(&format!("duebox: {error:#}\n"));
        cli::FAILED
    });
    ExitCode::from(code)
}

/// First everything that can fail at once, then the runtime: one thread, more carry no more (docs/decisions/0010).
fn daemon(cli: &Cli) -> anyhow::Result<u8> {
    let loaded = config::load(cli.config.as_deref());
    let Ok(loaded) = loaded else {
        complain(&config::report(&loaded));
        return Ok(cli::MISCONFIGURED);
    };
    let _writer = log::start(&loaded.config.log)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(app::run(loaded.config))?;
    // Something may still hang in the system; the process does not wait for it.
    runtime.shutdown_background();
    Ok(match ended {
        Ended::Stopped => {
            tracing::info!("stopped");
            cli::OK
        }
        Ended::Misconfigured(reason) => {
            tracing::error!("{reason}");
            cli::MISCONFIGURED
        }
        Ended::Failed(reason) => {
            tracing::error!("{reason}");
            cli::FAILED
        }
    })
}

fn one_shot(cli: Cli) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cli::run(cli))
}

/// The last words before the log exists. If standard error is gone, there is nobody to tell.
fn complain(text: &str) {
    use std::io::Write;
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}
