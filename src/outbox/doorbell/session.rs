//! One direct session: what K is, and the statements that move it.

use super::super::connect::{within, writable};
use super::super::error::Error;
use super::OVER;
use super::facts::{DOORBELL, Facts};
use crate::relay::Inserting;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, Notify};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

const END_SESSION: &str = include_str!("../../../sql/end_session.sql");
const INSERTING: &str = include_str!("../../../sql/inserting.sql");
const TAKE: &str = include_str!("../../../sql/doorbell_take.sql");
const RELEASE: &str = include_str!("../../../sql/doorbell_release.sql");
const RING: &str = include_str!("../../../sql/ring.sql");

/// The server ends a session that has been silent for so long, and with it K: a relay that is frozen or cut off must
/// not keep producers from ringing for the others. A version without the setting (13 and before) keeps it until its
/// TCP keepalive gives up.
const KEEP: &str = "select set_config('idle_session_timeout', '30s', false) \
                    where current_setting('server_version_num')::int >= 140000";

/// How long a step may take. It is one cheap statement, and whoever waits for it sits at the desk.
const STEP: Duration = Duration::from_secs(2);

type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// One session that hears producers.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    key: [i32; 2],
    pub(super) pid: i32,
    /// Whether we hold K, as far as we know; nothing once it has been given back for good. Kept for as long as a
    /// statement about K takes: a worker's last claim and the stop meet here.
    held: Mutex<Option<bool>>,
    /// A step failed: the connection is of no use any more.
    pub(super) failed: Notify,
}

impl Session {
    pub(super) fn new(client: Client, facts: &Facts) -> Self {
        Self { client, key: facts.key, pid: facts.pid, held: Mutex::new(Some(false)), failed: Notify::new() }
    }

    /// Takes K unless we have it. Another relay may have it, or for a moment a producer: the next claim tries again.
    pub(super) async fn take(&self) -> Result<(), Error> {
        let mut held = self.held.lock().await;
        if *held == Some(false) {
            *held = Some(self.ask_key("take the doorbell's lock", TAKE).await?);
        }
        Ok(())
    }

    /// Gives K back; `for_good`, and never takes it again: whoever is told that we are gone relies on it.
    pub(super) async fn release(&self, for_good: bool) -> Result<(), Error> {
        let mut held = self.held.lock().await;
        if *held == Some(true) {
            self.ask_key("release the doorbell's lock", RELEASE).await?;
        }
        *held = held.and((!for_good).then_some(false));
        Ok(())
    }

    /// Gives K back, and has the others go the whole way to sleep.
    pub(super) async fn tell(&self, channel: &str, for_good: bool) -> Result<(), Error> {
        self.release(for_good).await?;
        self.ring(channel, OVER).await
    }

    async fn ask_key(&self, what: &'static str, statement: &str) -> Result<bool, Error> {
        let parameters: &Parameters<'_> = &[(&self.key[0], Type::INT4), (&self.key[1], Type::INT4)];
        let rows = ask(&self.client, what, statement, parameters).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0)).map_err(Error::statement(what))
    }

    /// Open transactions that may have inserted.
    pub(super) async fn inserting(&self, schema: &str) -> Result<Vec<Inserting>, Error> {
        let what = "ask who is inserting";
        let rows = ask(&self.client, what, INSERTING, &[(&schema, Type::TEXT)]).await?;
        let read = |row: &tokio_postgres::Row| {
            Ok(Inserting { transaction: row.try_get("transaction")?, pid: row.try_get("pid")? })
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(Error::statement(what))
    }

    pub(super) async fn ring(&self, channel: &str, payload: &str) -> Result<(), Error> {
        ask(&self.client, "ring", RING, &[(&channel, Type::TEXT), (&payload, Type::TEXT)]).await.map(drop)
    }

    /// The smallest question that shows that the connection works and leads to the primary: a standby would keep it and
    /// never announce anything.
    pub(super) async fn touch(&self, limit: Duration) -> Result<(), Error> {
        let what = "touch the LISTEN connection";
        within(what, limit, writable(&self.client, what)).await
    }
}

/// Asks for the facts, and ends the session `before`, whose K would keep producers from ringing.
pub(super) async fn facts(client: &Client, schema: &str, before: Option<&(i32, SystemTime)>) -> Result<Facts, Error> {
    if let Some((pid, since)) = before {
        ask(client, "end our session of before", END_SESSION, &[(pid, Type::INT4), (since, Type::TIMESTAMPTZ)]).await?;
    }
    let what = "look at the doorbell";
    let rows = ask(client, what, DOORBELL, &[(&schema, Type::TEXT)]).await?;
    let row = rows.first().ok_or_else(|| Error::Unexpected(format!("{what}: no answer")))?;
    Facts::read(row).map_err(Error::statement(what))
}

/// Has the server end the session when we are silent for too long.
pub(super) async fn keep(client: &Client) -> Result<(), Error> {
    ask(client, "set up LISTEN", KEEP, &[]).await.map(drop)
}

async fn ask(
    client: &Client,
    what: &'static str,
    statement: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<tokio_postgres::Row>, Error> {
    within(what, STEP, async { client.query_typed(statement, parameters).await.map_err(Error::statement(what)) }).await
}
