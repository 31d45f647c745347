//! The test's database: a client, rows of the outbox in, counts out.

use super::rig::Rig;
use std::ops::Deref;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// A session; dropping it ends it.
pub(crate) struct Db {
    client: Client,
    driver: JoinHandle<()>,
}

/// One row for the outbox, as a producer writes it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// A tier of relay.toml.
    pub(crate) tier: String,
    /// The business id.
    pub(crate) key: Option<String>,
    /// AMQP type.
    pub(crate) kind: Option<String>,
    /// For targets without a key.
    pub(crate) routing_key: Option<String>,
    /// What is published.
    pub(crate) payload: serde_json::Value,
    /// Headers of the message.
    pub(crate) headers: serde_json::Value,
    /// Due so many seconds from now; none: the tier's delay decides.
    pub(crate) due_in: Option<f64>,
    /// Written so many seconds ago.
    pub(crate) age: f64,
}

impl Row {
    /// A row with an empty object as payload.
    pub(crate) fn new(tier: &str) -> Self {
        Self {
            tier: tier.to_owned(),
            key: None,
            kind: None,
            routing_key: None,
            payload: serde_json::json!({}),
            headers: serde_json::json!({}),
            due_in: None,
            age: 0.0,
        }
    }

    /// The same with a key.
    pub(crate) fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }
}

impl Rig {
    /// A session as the owner of the test's database.
    pub(crate) async fn db(&self) -> Db {
        Db::connect(&self.postgres_url()).await.unwrap()
    }

    /// A session as another role.
    pub(crate) async fn db_as(&self, role: &str) -> Db {
        Db::connect(&self.postgres_url_as(role)).await.unwrap()
    }
}

impl Db {
    /// Opens a session, for a test that expects a refusal or goes through a proxy.
    pub(crate) async fn connect(url: &str) -> Result<Self, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("session of a test: {error}");
            }
        });
        Ok(Self { client, driver })
    }

    /// Inserts one row; returns its id and `message_id`.
    pub(crate) async fn insert(&self, row: &Row) -> (i64, Uuid) {
        const INSERT: &str = "insert into duebox.outbox \
            (tier, key, type, routing_key, payload, headers, due_at, created_at) \
            values ($1, $2, $3, $4, $5, $6, now() + $7::float8 * interval '1 s', now() - $8::float8 * interval '1 s') \
            returning id, message_id";
        let Row { tier, key, kind, routing_key, payload, headers, due_in, age } = row;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [tier, key, kind, routing_key, payload, headers, due_in, age];
        let row = self.client.query_one(INSERT, &values).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// Inserts `n` rows in one statement, with keys and payload ids 1..=n.
    pub(crate) async fn insert_rows(&self, tier: &str, n: i32) {
        const INSERT: &str = "insert into duebox.outbox (tier, key, payload) \
            select $1::text, i::text, jsonb_build_object('id', i) from generate_series(1, $2::int) as i";
        self.client.execute(INSERT, &[&tier, &n]).await.unwrap();
    }

    /// How many rows of the outbox satisfy a predicate.
    pub(crate) async fn count(&self, predicate: &str) -> i64 {
        let query = format!("select count(*) from duebox.outbox where {predicate}");
        self.client.query_one(&query, &[]).await.unwrap().get(0)
    }
}

impl Deref for Db {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
