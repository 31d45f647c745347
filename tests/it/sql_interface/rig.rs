//! A migrated database of its own for each test, and clients in each role.

use crate::support::postgres::Postgres;
use duebox::outbox::migrate::{self, Grants, Trigger};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::{Client, Config, Error, NoTls, error::SqlState};

/// Where the server is, as a superuser.
fn server() -> Config {
    Postgres::shared().url("postgres", "postgres").parse().unwrap()
}

/// A database, dropped with the server. The roles are named after it, as roles belong to the server.
pub(super) struct Database {
    pub(super) name: String,
    pub(super) schema: &'static str,
    pub(super) producer: String,
    pub(super) relay: String,
    owner: String,
}

impl Database {
    /// Empty, with an owner who is no superuser and has CREATE on the database.
    pub(super) async fn empty(schema: &'static str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sqlif_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Self {
            schema,
            producer: format!("{name} \"shop\""),
            relay: format!("{name}_relay"),
            owner: format!("{name}_owner"),
            name,
        };
        let admin = connect(&server()).await;
        for role in [&database.producer, &database.relay, &database.owner] {
            let quoted = role.replace('"', "\"\"");
            admin.batch_execute(&format!("create role \"{quoted}\" login")).await.unwrap();
        }
        admin.batch_execute(&format!("create database {}", database.name)).await.unwrap();
        let grant = format!("grant create on database {} to {}", database.name, database.owner);
        admin.batch_execute(&grant).await.unwrap();
        database
    }

    pub(super) async fn migrated() -> Self {
        let database = Self::empty("duebox").await;
        migrate::apply(&mut database.owner().await, database.schema, &database.grants(), Trigger::Keep).await.unwrap();
        database
    }

    pub(super) fn grants(&self) -> Grants {
        Grants { producers: vec![self.producer.clone()], relays: vec![self.relay.clone()] }
    }

    pub(super) fn config(&self, role: &str) -> Config {
        let mut config = server();
        config.dbname(&self.name).user(role);
        config
    }

    /// In the schema, as the role that migrates.
    pub(super) async fn owner(&self) -> Client {
        self.client(&self.owner).await
    }

    pub(super) async fn superuser(&self) -> Client {
        let mut config = server();
        connect(config.dbname(&self.name)).await
    }

    /// In the schema, as the daemon's role.
    pub(super) async fn relay(&self) -> Client {
        self.client(&self.relay).await
    }

    /// Outside the schema, as applications are: they qualify what they call.
    pub(super) async fn producer(&self) -> Client {
        connect(&self.config(&self.producer)).await
    }

    async fn client(&self, role: &str) -> Client {
        let client = connect(&self.config(role)).await;
        client.batch_execute(&format!("set search_path = \"{}\"", self.schema)).await.unwrap();
        client
    }
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The first column of the only row.
pub(super) async fn one<T>(client: &Client, sql: &str) -> T
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    client.query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {}", told(&e))).get(0)
}

/// Runs what must be refused, and returns why.
pub(super) async fn refused(client: &Client, sql: &str) -> Error {
    match client.batch_execute(sql).await {
        Ok(()) => panic!("was not refused: {sql}"),
        Err(e) => e,
    }
}

pub(super) async fn denied(client: &Client, sql: &str) {
    let error = refused(client, sql).await;
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {}", told(&error));
}

pub(super) async fn allowed(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {}", told(&e)));
}

pub(super) fn told(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}
