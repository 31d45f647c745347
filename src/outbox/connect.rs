//! Connections: one pool for the relay's work, and connections alone for LISTEN and one-shot commands.
//!
//! Nothing of ours is left on a session, because behind a transaction pooler the session is somebody else's a moment
//! later: every statement runs in a transaction that brings its settings along, and none is prepared under a name.

mod db;
mod hosts;
mod transaction;

use super::error::{Error, describe};
use super::migrate::quote_ident;
use hosts::Hosts;
use secrecy::{ExposeSecret, SecretString};
use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};

pub use db::{Db, Moved};
pub use transaction::Transaction;

/// How much longer than Postgres itself we wait for a statement: the server's own timeout answers with a reason, ours
/// only catches a server that no longer answers at all.
const GRACE: Duration = Duration::from_secs(2);

/// How to reach the database.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A libpq URL; several servers may stand in it, and the first that takes writes is used.
    pub url: SecretString,
    /// Overrides the URL's password.
    pub password: Option<SecretString>,
    /// The schema that holds our tables; alone in the `search_path` of every statement.
    pub schema: String,
    /// Bound on a whole connect to one server: TCP, authentication and the question whether it takes writes.
    pub connect_timeout: Duration,
    /// Bound on one statement, kept by the server.
    pub statement_timeout: Duration,
}

impl Settings {
    /// The bound on one statement that we keep ourselves.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.statement_timeout + GRACE
    }

    /// Bound on a connect to whichever server of the URL takes writes: each may take its time.
    #[must_use]
    pub fn reach(&self) -> Duration {
        let servers = self.hosts("").map_or(1, |hosts| hosts.count());
        self.connect_timeout.saturating_mul(servers)
    }

    fn hosts(&self, name: &str) -> Result<Hosts, Error> {
        let hosts = Hosts::of(&self.config(name)?, self.connect_timeout)?;
        Ok(if self.password.is_some() { hosts.with_password_beside() } else { hosts })
    }

    fn config(&self, name: &str) -> Result<Config, Error> {
        let url = for_driver(self.url.expose_secret());
        let mut config: Config = url.parse().map_err(|error| Error::Url(describe(&error)))?;
        if let Some(password) = &self.password {
            config.password(password.expose_secret());
        }
        if config.get_application_name().is_none() {
            config.application_name(name);
        }
        // On a standby no row can be locked, and a look there would find an outbox that is not today's.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // Without these a peer that vanished is noticed after two hours (the kernel's default).
        config.connect_timeout(self.connect_timeout);
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        config.tcp_user_timeout(self.patience() + GRACE);
        Ok(config)
    }

    /// Begins a transaction with all that a statement of ours relies on, and asks whether the server takes writes.
    ///
    /// Not `read write`: that would override a `default_transaction_read_only` by which somebody moves the primary.
    fn begin(&self) -> String {
        format!(
            "begin isolation level read committed; set local search_path = {}, pg_temp; \
             set local statement_timeout = {}; show transaction_read_only",
            quote_ident(&self.schema),
            self.statement_timeout.as_millis()
        )
    }
}

/// Whether the driver can read the URL.
///
/// # Errors
/// Why it cannot; without any part of the URL, which may be a password.
pub fn reads(url: &str) -> Result<(), String> {
    for_driver(url).parse::<Config>().map(drop).map_err(|error| describe(&error))
}

/// The URL in the driver's words: it does not know libpq's `primary`, which is `read-write` to us.
fn for_driver(url: &str) -> Cow<'_, str> {
    const KEY: &str = "target_session_attrs=";
    let start = if url.contains("://") { url.find('?').unwrap_or(url.len()) } else { 0 };
    let (head, parameters) = url.split_at(start);
    if !parameters.contains(KEY) {
        return Cow::Borrowed(url);
    }
    let known = ["primary", "'primary'"].map(|word| format!("{KEY}{word}"));
    let driver = known.iter().fold(parameters.to_owned(), |text, word| text.replace(word, &format!("{KEY}read-write")));
    Cow::Owned(format!("{head}{driver}"))
}

/// A connection outside the pool; its second half must be polled for the first to work.
///
/// # Errors
/// No server of the URL can be reached, lets us in and takes writes, each within the connect timeout.
pub async fn alone(settings: &Settings, name: &str) -> Result<(Client, Connection<Socket, NoTlsStream>), Error> {
    settings.hosts(name)?.first(async |config: Config| config.connect(NoTls).await).await.map_err(Error::Connect)
}

/// Waits for `work`, but no longer than `limit`.
pub(crate) async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(Error::Deadline { what, within: limit }))
}

/// Runs `work` on a connection of its own, made for it and closed after it.
///
/// # Errors
/// Postgres cannot be reached, or whatever `work` says.
pub async fn with_alone<T, E: From<Error>>(
    settings: &Settings,
    name: &str,
    work: impl AsyncFnOnce(&mut Client) -> Result<T, E>,
) -> Result<T, E> {
    let (mut client, connection) = alone(settings, name).await?;
    let work = async {
        let done = work(&mut client).await;
        drop(client);
        done
    };
    // The connection ends when its client has been dropped, or with the server's own word, which `work` sees as well.
    let (done, _closed) = tokio::join!(work, connection);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpqs_word_for_the_primary_reaches_the_driver_in_its_own() {
        for (url, driver) in [
            ("postgres://u@h/d?target_session_attrs=primary&options=x", "?target_session_attrs=read-write&options=x"),
            ("host=h target_session_attrs='primary'", "target_session_attrs=read-write"),
            ("host=h target_session_attrs=primary user=u", "target_session_attrs=read-write user=u"),
        ] {
            assert!(for_driver(url).ends_with(driver), "{}", for_driver(url));
        }
        let untouched = "postgres://target_session_attrs=primary@h/d";
        assert_eq!(for_driver(untouched), untouched);
    }
}
