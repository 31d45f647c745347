//! What can go wrong on the RabbitMQ side, and how it is said.

use lapin::ErrorKind;
use lapin::protocol::AMQPErrorKind;
use std::time::Duration;

/// The RabbitMQ side failed; never about one message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker or its client said no.
    #[error("{what}: {}", describe(.source))]
    Amqp {
        /// What was being done.
        what: String,
        /// The client's error.
        source: lapin::Error,
    },
    /// Whoever listens there ended the connection before it was one.
    #[error(
        "{what}: {}; does RabbitMQ listen there? another server, such as PostgreSQL, ends a connection like this",
        describe(.source)
    )]
    Handshake {
        /// What was being done.
        what: String,
        /// The client's error.
        source: lapin::Error,
    },
    /// The network said no.
    #[error("{what}: {source}")]
    Network {
        /// What was being done.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("{what}: no answer within {within:?}")]
    Deadline {
        /// What was being done.
        what: String,
        /// The deadline.
        within: Duration,
    },
}

impl Error {
    /// Wraps a client error with what was being done.
    pub(super) fn amqp(what: impl Into<String>) -> impl FnOnce(lapin::Error) -> Self {
        move |source| Self::Amqp { what: what.into(), source }
    }

    /// Wraps what a login failed with.
    pub(super) fn handshake(what: impl Into<String>) -> impl FnOnce(lapin::Error) -> Self {
        move |source| match matches!(source.kind(), ErrorKind::IOError(_)) {
            true => Self::Handshake { what: what.into(), source },
            false => Self::Amqp { what: what.into(), source },
        }
    }
}

/// Waits for `work`, but no longer than `limit`.
pub(super) async fn within<T>(
    what: &str,
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let late = || Error::Deadline { what: what.to_owned(), within: limit };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(late()))
}

/// The reply code and text of an error that the broker sent.
pub(super) fn reply(error: &lapin::Error) -> Option<(u16, String)> {
    let ErrorKind::ProtocolError(error) = error.kind() else { return None };
    Some((error.get_id(), error.get_message().to_string()))
}

/// The reply code and text of an error that closed one channel and left the connection alone.
pub(super) fn channel_closed(error: &lapin::Error) -> Option<(u16, String)> {
    let ErrorKind::ProtocolError(protocol) = error.kind() else { return None };
    matches!(protocol.kind(), AMQPErrorKind::Soft(_)).then(|| reply(error)).flatten()
}

/// An error in words, with the cure where the client's own text hides it.
#[must_use]
pub fn describe(error: &lapin::Error) -> String {
    match reply(error) {
        Some((403, text)) => format!("{text} (403); check the user, its password and its permissions on this vhost"),
        Some((530, text)) => format!("{text} (530); does the vhost exist, and may this user see it?"),
        Some((code, text)) => format!("{text} ({code})"),
        None if matches!(error.kind(), ErrorKind::ParsingError(_)) => {
            format!("{error}; this does not look like a plain AMQP port")
        }
        None => error.to_string(),
    }
}
