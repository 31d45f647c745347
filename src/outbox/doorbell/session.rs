//! One direct session: what K is, and the statements that move it.

use super::super::connect::within;
use super::super::error::Error;
use super::facts::{DOORBELL, Facts};
use crate::relay::Inserting;
use std::time::{Duration, SystemTime};
use tokio::sync::{Mutex, watch};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

const END_SESSION: &str = include_str!("../../../sql/end_session.sql");
const INSERTING: &str = include_str!("../../../sql/inserting.sql");
const TAKE: &str = include_str!("../../../sql/doorbell_take.sql");
const RELEASE: &str = include_str!("../../../sql/doorbell_release.sql");
pub(super) const RING: &str = include_str!("../../../sql/ring.sql");

/// The server ends a session that has been silent for so long, and with it K: a relay that is frozen or cut off must
/// not keep producers from ringing for the others. A version without the setting (13 and before) ends that of a relay
/// that is cut off when its TCP keepalive gives up, and keeps that of one that is frozen.
const KEEP: &str = "select set_config('idle_session_timeout', '30s', false) \
                    where current_setting('server_version_num')::int >= 140000";

/// How long a step may take. It is one cheap statement, and whoever waits for it sits at the desk.
const STEP: Duration = Duration::from_secs(2);

/// How soon a session that was told to end is looked for again.
const ENDING: Duration = Duration::from_millis(20);

type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// What we know of K. Every statement about it runs while this is locked: a worker's last claim and the stop meet here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// Not ours.
    Free,
    /// Ours, or asked for: whoever gives up waiting for the answer may have got it.
    Held,
    /// Given back, never to be taken again: others have been told that we are gone, and rely on it.
    GivenUp,
}

/// One session that hears producers.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    numbers: [i32; 2],
    pub(super) pid: i32,
    key: Mutex<Key>,
    /// Why the connection is of no use any more, told by the step that failed.
    failed: watch::Sender<Option<String>>,
}

impl Session {
    pub(super) fn new(client: Client, facts: &Facts) -> Self {
        let Facts { key: numbers, pid, .. } = *facts;
        Self { client, numbers, pid, key: Mutex::new(Key::Free), failed: watch::Sender::new(None) }
    }

    /// Takes K unless we have it. Another relay may have it, or for a moment a producer: the next claim tries again.
    pub(super) async fn take(&self) -> Result<(), Error> {
        let mut key = self.key.lock().await;
        if *key == Key::Free {
            *key = Key::Held;
            if !self.ask_key("take the doorbell's lock", TAKE).await? {
                *key = Key::Free;
            }
        }
        Ok(())
    }

    /// Gives K back.
    pub(super) async fn release(&self) -> Result<(), Error> {
        let mut key = self.key.lock().await;
        if *key == Key::Held {
            self.ask_key("release the doorbell's lock", RELEASE).await?;
            *key = Key::Free;
        }
        Ok(())
    }

    /// Gives K back and never takes it again.
    pub(super) async fn give_up(&self) -> Result<(), Error> {
        let mut key = self.key.lock().await;
        if std::mem::replace(&mut *key, Key::GivenUp) == Key::Held {
            self.ask_key("release the doorbell's lock", RELEASE).await?;
        }
        Ok(())
    }

    /// Says that a step failed.
    pub(super) fn fail(&self, error: &Error) {
        self.failed.send_replace(Some(error.to_string()));
    }

    /// Why a step failed, once one has.
    pub(super) async fn failed(&self) -> Error {
        let mut failed = self.failed.subscribe();
        let why = failed.wait_for(Option::is_some).await.map(|why| why.clone().unwrap_or_default());
        Error::Lost(format!("LISTEN connection: {}", why.unwrap_or_default()))
    }

    async fn ask_key(&self, what: &'static str, statement: &str) -> Result<bool, Error> {
        let parameters: &Parameters<'_> = &[(&self.numbers[0], Type::INT4), (&self.numbers[1], Type::INT4)];
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

    /// Shows that the connection works, that it leads to the primary (a standby would keep it and never announce
    /// anything), and says why inserts do not ring, if they do not: somebody may have run `migrate --no-doorbell`.
    pub(super) async fn touch(&self, schema: &str, limit: Duration) -> Result<Option<String>, Error> {
        let what = "see whether the LISTEN connection still works";
        let now = within(what, limit, look(&self.client, what, schema)).await?;
        if now.read_only {
            return Err(Error::ReadOnly { what });
        }
        Ok(now.fault(schema))
    }
}

/// Asks for the facts, and ends the session `before`, whose K would keep producers from ringing.
pub(super) async fn facts(client: &Client, schema: &str, before: Option<&(i32, SystemTime)>) -> Result<Facts, Error> {
    if let Some((pid, since)) = before {
        let (what, parameters) =
            ("end our session of before", [(pid as &(dyn ToSql + Sync), Type::INT4), (since, Type::TIMESTAMPTZ)]);
        while !ask(client, what, END_SESSION, &parameters).await?.is_empty() {
            tokio::time::sleep(ENDING).await;
        }
    }
    look(client, "look at the trigger that rings", schema).await
}

async fn look(client: &Client, what: &'static str, schema: &str) -> Result<Facts, Error> {
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
