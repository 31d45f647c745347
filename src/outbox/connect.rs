//! Connections: one pool for the relay's work, and connections alone for LISTEN and one-shot commands.

use super::error::{Error, describe, pool_error};
use super::migrate::quote_ident;
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, RecyclingMethod, Runtime};
use secrecy::{ExposeSecret, SecretString};
use std::future::Future;
use std::time::Duration;
use tokio_postgres::config::Host;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};

/// A pool of connections, by a name that those may use who must not know the driver.
pub use deadpool_postgres::Pool;

/// How much longer than Postgres itself we wait for a statement: the server's own timeout answers with a reason, ours
/// only catches a server that no longer answers at all.
const GRACE: Duration = Duration::from_secs(2);

/// How to reach the database.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A libpq URL.
    pub url: SecretString,
    /// Overrides the URL's password.
    pub password: Option<SecretString>,
    /// The schema that holds our tables, put in front of the connection's `search_path`.
    pub schema: String,
    /// Bound on a whole connect: TCP, authentication and first settings.
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

    fn config(&self, name: &str) -> Result<Config, Error> {
        let url = self.url.expose_secret();
        let mut config: Config = url.parse().map_err(|error| Error::Url(describe(&error)))?;
        if let Some(password) = &self.password {
            config.password(password.expose_secret());
        }
        if config.get_application_name().is_none() {
            config.application_name(name);
        }
        // Without these a peer that vanished is noticed after two hours (the kernel's default).
        config.connect_timeout(self.connect_timeout);
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3);
        config.tcp_user_timeout(self.patience() + GRACE);
        Ok(config)
    }

    /// The error of a server that cannot be reached, named without its secrets.
    fn away(&self, reason: &str) -> Error {
        let Ok(config) = self.config("") else { return Error::Connect(reason.to_owned()) };
        let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
        let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
        let (user, database) = (config.get_user().unwrap_or("?"), config.get_dbname().unwrap_or("?"));
        let port = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
        Error::Connect(format!("at {}:{port}, database {database}, user {user}: {reason}", hosts.join(",")))
    }

    fn session(&self) -> String {
        format!(
            "set search_path = {}, pg_temp; set statement_timeout = {}; set default_transaction_isolation = 'read committed'",
            quote_ident(&self.schema),
            self.statement_timeout.as_millis()
        )
    }
}

fn host(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    }
}

/// A pool of at most `size` connections, made when they are needed.
///
/// # Errors
/// The URL cannot be parsed.
pub fn pool(settings: &Settings, size: usize) -> Result<Pool, Error> {
    let config = settings.config("duebox")?;
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let session = settings.session();
    let prepare = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        let session = session.clone();
        Box::pin(async move { client.batch_execute(&session).await.map_err(HookError::Backend) })
    });
    Pool::builder(manager)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(settings.connect_timeout))
        .wait_timeout(Some(settings.patience()))
        .recycle_timeout(Some(settings.connect_timeout))
        .post_create(prepare)
        .build()
        .map_err(|error| Error::Connect(error.to_string()))
}

/// A connection outside the pool; its second half must be polled for the first to work.
///
/// # Errors
/// Postgres cannot be reached, refuses, or does not answer within the connect timeout.
pub async fn alone(settings: &Settings, name: &str) -> Result<(Client, Connection<Socket, NoTlsStream>), Error> {
    let config = settings.config(name)?;
    within("connect", settings.connect_timeout, async {
        config.connect(NoTls).await.map_err(|error| settings.away(&describe(&error)))
    })
    .await
}

/// Gives the session of a connection made by [`alone`] the schema and the timeouts.
///
/// # Errors
/// Postgres refuses the settings.
pub async fn prepare_session(client: &Client, settings: &Settings) -> Result<(), Error> {
    within("set up the session", settings.connect_timeout, async {
        client.batch_execute(&settings.session()).await.map_err(Error::statement("set up the session"))
    })
    .await
}

/// Waits for `work`, but no longer than `limit`.
pub(crate) async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(Error::Deadline { what, within: limit }))
}

/// Borrows a connection; an error names the server, which the driver's does not.
pub(crate) async fn get(pool: &Pool, settings: &Settings) -> Result<Object, Error> {
    pool.get().await.map_err(|error| settings.away(&pool_error(&error)))
}

/// Runs one statement outside a transaction. A connection that did not answer in time never returns to the pool.
pub(crate) async fn once<T>(
    pool: &Pool,
    settings: &Settings,
    what: &'static str,
    work: impl AsyncFnOnce(&Object) -> Result<T, tokio_postgres::Error>,
) -> Result<T, Error> {
    let client = get(pool, settings).await?;
    let answer = within(what, settings.patience(), async { work(&client).await.map_err(Error::statement(what)) }).await;
    if matches!(answer, Err(Error::Deadline { .. })) {
        drop(Object::take(client));
    }
    answer
}

/// A transaction that owns its connection. Dropped unfinished, it closes the connection: the server rolls back, and no
/// half-done transaction ever returns to the pool.
#[derive(Debug)]
pub struct Transaction {
    client: Option<Object>,
    patience: Duration,
}

impl Transaction {
    /// Begins a READ COMMITTED transaction that the server ends when we are silent for longer than `silence`.
    pub(crate) async fn begin(pool: &Pool, settings: &Settings, silence: Duration) -> Result<Self, Error> {
        let client = get(pool, settings).await?;
        let transaction = Self { client: Some(client), patience: settings.patience() };
        let silence = silence.as_millis();
        // tcp_user_timeout: without it a relay that was stopped while reading keeps its rows (measured).
        let begin = format!(
            "begin isolation level read committed; set local idle_in_transaction_session_timeout = {silence}; \
             set local tcp_user_timeout = {silence}"
        );
        transaction.run("begin", async |client| client.batch_execute(&begin).await).await?;
        Ok(transaction)
    }

    /// Runs `work` on the connection within the deadline of one statement.
    pub(crate) async fn run<T>(
        &self,
        what: &'static str,
        work: impl AsyncFnOnce(&Object) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        let client = self.client.as_ref().ok_or_else(|| Error::Unexpected(format!("{what}: already finished")))?;
        within(what, self.patience, async { work(client).await.map_err(Error::statement(what)) }).await
    }

    /// Commits. An error leaves the outcome unknown: the rows show it at the next claim.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.finish("commit").await
    }

    /// Rolls back, so that the rows are free again at once.
    pub(crate) async fn roll_back(self) -> Result<(), Error> {
        self.finish("rollback").await
    }

    async fn finish(mut self, how: &'static str) -> Result<(), Error> {
        self.run(how, async |client| client.batch_execute(how).await).await?;
        // Only now may the connection go back to the pool.
        drop(self.client.take());
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
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
