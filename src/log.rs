//! The log: to stderr, one line an event, readable alone.

use crate::config::{Log, LogFormat};
use std::io::IsTerminal;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// lapin logs every returned message with its body at WARN, and the Postgres driver logs parameters at DEBUG: payloads
/// do not belong into a log, whatever level is asked for. What lapin and the pool say of
/// lost connections is said again by us, in words.
const QUIET: &str = "lapin=off,tokio_postgres=warn,deadpool=off,deadpool_postgres=off";

/// Lines that wait for a slow reader: a megabyte or so.
const LINES: usize = 4_000;

/// Writes what is left when it is dropped, unless nobody reads.
pub type Writer = WorkerGuard;

/// Starts the log of this process. Lines are written by a thread of their own and dropped when they pile up: whoever reads
/// standard error and stops must not stop the relay with it.
///
/// # Errors
/// `log.level` is not a filter.
pub fn start(log: &Log) -> Result<Writer, ParseError> {
    let filter = EnvFilter::builder().parse(format!("{},{QUIET}", log.level))?;
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES).finish(std::io::stderr());
    // NO_COLOR is honoured by the subscriber; a pipe or the journal must not get colour codes.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A second start in one process is a test's; the first one stays.
    drop(match log.format {
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
        LogFormat::Auto | LogFormat::Text => builder.try_init(),
    });
    Ok(guard)
}
