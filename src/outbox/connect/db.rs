//! The database: a pool, whose connections are all given up when the primary has moved.

use super::hosts::Pooled;
use super::{GRACE, Settings};
use crate::outbox::error::Error;
use deadpool_postgres::{Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime};
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio_postgres::Client;

/// The database, and how its connections were made; cloned, it is the same one.
#[derive(Debug, Clone)]
pub struct Db {
    pool: deadpool_postgres::Pool,
    settings: Arc<Settings>,
    /// What the last connect that failed was told.
    said: Arc<Mutex<String>>,
    moved: Arc<Moved>,
}

/// Tells those who hold a connection outside the pool that the primary has moved, and theirs with it.
#[derive(Debug, Default)]
pub struct Moved(Notify);

impl Moved {
    /// Resolves when the primary has moved, counted from the call of this function.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.notified()
    }
}

impl Db {
    /// At most `size` connections, made when they are needed.
    ///
    /// # Errors
    /// The URL cannot be parsed.
    pub fn new(settings: Settings, size: usize) -> Result<Self, Error> {
        let (config, hosts, said) = (settings.config("duebox")?, settings.hosts("duebox")?, Arc::default());
        let pooled = Pooled { hosts, said: Arc::clone(&said) };
        let manager = Manager::from_connect(config, pooled, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            // Each server has its own deadline below; this one is for what none of them covers.
            .create_timeout(Some(settings.reach() + GRACE))
            .wait_timeout(Some(settings.patience()))
            .recycle_timeout(Some(settings.connect_timeout))
            .build()
            .map_err(|error| Error::Connect(error.to_string()))?;
        Ok(Self { pool, settings: Arc::new(settings), said, moved: Arc::default() })
    }

    /// How its connections are made.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tells when the primary has moved.
    #[must_use]
    pub fn moved(&self) -> Arc<Moved> {
        Arc::clone(&self.moved)
    }

    /// Borrows a connection.
    pub(super) async fn lend(&self) -> Result<Lent, Error> {
        match self.pool.get().await {
            Ok(object) => Ok(Lent { object: Some(object) }),
            Err(PoolError::Backend(_)) => {
                Err(Error::Connect(self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()))
            }
            Err(error) => Err(Error::Connect(error.to_string())),
        }
    }

    /// Draws the consequence of an error for the other connections: a server that takes no writes any more is not the
    /// primary, and one that does not even tell us that a statement took too long is gone or cut off from us. What is
    /// connected to it would only find that out one by one, each after its own deadline.
    pub(super) fn note(&self, error: &Error) {
        if matches!(error, Error::ReadOnly { .. } | Error::Deadline { .. }) {
            self.pool.retain(|_, _| false);
        }
        if matches!(error, Error::ReadOnly { .. }) {
            self.moved.0.notify_waiters();
        }
    }
}

/// A borrowed connection. It is closed when it is dropped, and goes back to the pool only when whoever had it says that
/// it has nothing open on it: no half-done transaction, no statement that still runs.
#[derive(Debug)]
pub(super) struct Lent {
    object: Option<Object>,
}

impl Lent {
    /// The connection, for `what`.
    pub(super) fn client(&self, what: &'static str) -> Result<&Client, Error> {
        let gone = || Error::Unexpected(format!("{what}: the connection was given back"));
        self.object.as_deref().map(Deref::deref).ok_or_else(gone)
    }

    /// Gives it back for others to use.
    pub(super) fn give_back(mut self) {
        drop(self.object.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
