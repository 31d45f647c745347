//! The doorbell: LISTEN without a NOTIFY in every transaction, on a direct connection of its own.
//!
//! A relay that is awake holds the advisory lock K, and the trigger on the outbox rings only when K is free. When to
//! take it, when to give it back and how to fall asleep without missing anybody is [`crate::relay`]'s; here is the
//! connection on which it happens, made again for ever.

pub(crate) mod facts;
mod session;

use super::connect::{Pool, Settings, alone, once, within};
use super::error::{Error, describe};
use super::migrate::{channel, quote_ident};
use crate::admin::health::{Health, Part};
use crate::backoff::Backoff;
use crate::relay::Inserting;
use crate::stop::Stop;
use crate::wake::Wake;
use futures_util::stream::{self, StreamExt};
use session::Session;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Notification};

const RING: &str = include_str!("../../sql/ring.sql");

/// How often the connection is tried, so that a peer that vanished without a word is noticed, and so that the server
/// does not end the session (see [`session`]).
const TOUCH: Duration = Duration::from_secs(10);

/// How long our own ring may take to come back; a transaction pooler swallows it.
const PROBE: Duration = Duration::from_secs(2);

/// Touches after which a doorbell that does not work is looked at again: somebody may have run `migrate`.
const RETRY: u32 = 3;

/// How long the word to other relays may take at the stop.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The loop's name where signs of life are kept.
const LOOP: &str = "listener";

/// How long to wait between two connects.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// What a ring says: nothing, look once.
const LOOK: &str = "";

/// What a ring says: a relay that was awake gives up, and there may be inserts that rang for nobody.
const OVER: &str = "over";

/// How a ring begins that is only meant for the relay that rang it.
const TRY: &str = "try ";

/// The doorbell of one outbox.
#[derive(Debug)]
pub struct Doorbell {
    settings: Settings,
    pool: Pool,
    pool_settings: Settings,
    wake: Arc<Wake>,
    health: Arc<Health>,
    /// There while producers' rings are heard.
    session: Mutex<Option<Arc<Session>>>,
}

type Messages = dyn futures_util::Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send + Unpin;

/// A connection that listens.
struct Line {
    messages: Box<Messages>,
    session: Arc<Session>,
    /// Why producers are not heard on it.
    fault: Option<String>,
}

impl Doorbell {
    /// A doorbell on a connection to `settings`, tried out by ringing through `pool`; nobody listens before [`run`].
    ///
    /// [`run`]: Doorbell::run
    #[must_use]
    pub fn new(
        settings: Settings,
        (pool, pool_settings): (Pool, Settings),
        wake: Arc<Wake>,
        health: Arc<Health>,
    ) -> Self {
        Self { settings, pool, pool_settings, wake, health, session: Mutex::default() }
    }

    /// Listens until the stop, reconnecting for ever.
    pub async fn run(&self, stop: &Stop) {
        let (mut failures, mut before) = (0, None);
        while !stop.raised() {
            self.health.beat(LOOP, self.stall());
            let Some(connected) = Box::pin(stop.or(self.connect(&mut before))).await else { break };
            let ended = match connected {
                Ok(line) => {
                    failures = 0;
                    Box::pin(self.stay(line, stop)).await
                }
                Err(error) => Err(error),
            };
            self.session().take();
            failures += 1;
            if let Err(error) = ended {
                self.health.problem(&Part::Listener, &format!("{error}; polling meanwhile"));
                // Whoever sleeps until the next ring has to begin polling.
                self.wake.alarm();
            }
            if stop.or(tokio::time::sleep(RECONNECT.wait(failures))).await.is_none() {
                break;
            }
        }
    }

    /// How long a turn may take: a connect and its first statements, or a touch, and a machine under load.
    fn stall(&self) -> Duration {
        self.settings.reach() + self.settings.connect_timeout + PROBE + self.settings.patience() + TOUCH * 4
    }

    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that listens, and hears producers if it can. `before` is the session of the one before it.
    async fn connect(&self, before: &mut Option<(i32, SystemTime)>) -> Result<Line, Error> {
        let (client, mut connection) = alone(&self.settings, "duebox listen").await?;
        let mut messages: Box<Messages> = Box::new(stream::poll_fn(move |cx| connection.poll_message(cx)));
        let limit = self.settings.connect_timeout;
        let setup = within("set up LISTEN", limit, async {
            let listen = format!("listen {}", quote_ident(&channel(&self.settings.schema)));
            client.batch_execute(&listen).await.map_err(Error::statement("listen"))?;
            session::facts(&client, &self.settings.schema, before.as_ref()).await
        });
        let facts = Box::pin(self.drive(&mut messages, 0, setup)).await?;
        let fault = match facts.fault(&self.settings.schema) {
            Some(fault) => Some(fault),
            None => self.deaf(&mut messages).await?,
        };
        if fault.is_none() {
            // Only now: behind a transaction pooler this would be another client's session.
            let keep = within("set up LISTEN", limit, session::keep(&client));
            self.drive(&mut messages, facts.pid, keep).await?;
            *before = Some((facts.pid, facts.since));
        }
        Ok(Line { messages, session: Arc::new(Session::new(client, &facts)), fault })
    }

    /// Listens on a connection until it fails (or it is time to see whether one that is deaf still is), or the stop.
    async fn stay(&self, Line { mut messages, session, fault }: Line, stop: &Stop) -> Result<(), Error> {
        match &fault {
            Some(fault) => self.health.problem(&Part::Listener, &format!("{fault}; polling meanwhile")),
            None => {
                *self.session() = Some(Arc::clone(&session));
                self.health.well(&Part::Listener);
            }
        }
        // What was committed before was announced to nobody.
        self.wake.alarm();
        let moved = self.pool.moved();
        let mut moved = std::pin::pin!(moved.changed());
        for touches in 1_u32.. {
            self.health.beat(LOOP, self.stall());
            let touch = async {
                tokio::select! {
                    () = stop.wait() => {
                        // In vain when the server is gone, and then K is gone too.
                        drop(tokio::time::timeout(HAND_OVER, self.tell(true)).await);
                        Ok(true)
                    }
                    () = session.failed.notified() => {
                        Err(Error::Connect("a statement on the LISTEN connection failed".to_owned()))
                    }
                    () = &mut moved => Err(Error::ReadOnly { what: "listen" }),
                    () = tokio::time::sleep(TOUCH) => session.touch(TOUCH / 2).await.map(|()| false),
                }
            };
            match (self.drive(&mut messages, session.pid, touch).await?, &fault) {
                (true, _) => break,
                // What other relays and requeue ring was heard all the same, if anything was.
                (false, Some(fault)) if touches >= RETRY => return Err(Error::Unexpected(fault.clone())),
                (false, _) => {}
            }
        }
        Ok(())
    }

    /// Rings through the pool and waits for it: why it was not heard.
    async fn deaf(&self, messages: &mut Messages) -> Result<Option<String>, Error> {
        let (heard, token) = (Notify::new(), format!("{TRY}{}", uuid::Uuid::new_v4()));
        let channel = channel(&self.settings.schema);
        let ring = async {
            once(&self.pool, &self.pool_settings, "try the doorbell", async |client| {
                client.query_typed(RING, &[(&channel, Type::TEXT), (&token, Type::TEXT)]).await
            })
            .await?;
            Ok(tokio::time::timeout(PROBE, heard.notified()).await.is_ok())
        };
        let on_note = |note: &Notification| {
            if note.payload() == token {
                heard.notify_one();
            }
        };
        let heard = drive(messages, on_note, ring).await?;
        Ok((!heard).then(|| {
            format!(
                "nothing rung is heard on the LISTEN connection within {PROBE:?}: it goes through a transaction pooler, \
                 or to another database than postgres.url; set postgres.listen_url to a direct connection, or wake = \"poll\""
            )
        }))
    }

    /// Drains messages, waking the relay for each ring that is not its own, until `work` is done.
    async fn drive<T>(
        &self,
        messages: &mut Messages,
        own: i32,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let on_note = |note: &Notification| match note.payload() {
            _ if note.process_id() == own => {}
            OVER => self.wake.alarm(),
            other if other.starts_with(TRY) => {}
            _ => self.wake.ring(),
        };
        drive(messages, on_note, work).await
    }

    /// Gives K back and tells the others. Whether we have K or not: we may be the one that waits for somebody who saw it
    /// held, or the only one that knows when a row falls due.
    async fn tell(&self, for_good: bool) {
        self.step(async |session| session.tell(&channel(&self.settings.schema), for_good).await).await;
    }

    /// Runs a step on the session, if there is one. One that fails ends the connection: nobody hears then.
    async fn step<T>(&self, step: impl AsyncFnOnce(&Session) -> Result<T, Error>) -> Option<T> {
        let session = self.session().clone()?;
        match step(&session).await {
            Ok(done) => Some(done),
            Err(error) => {
                tracing::debug!(%error, "doorbell: {error}");
                self.session().take_if(|now| Arc::ptr_eq(now, &session));
                session.failed.notify_one();
                None
            }
        }
    }
}

/// Drains messages, showing each notification to `on_note`, until `work` is done.
async fn drive<T>(
    messages: &mut Messages,
    mut on_note: impl FnMut(&Notification),
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(note))) => on_note(&note),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::Connect(describe(&error))),
                None => return Err(Error::Connect("the server closed the LISTEN connection".to_owned())),
            },
        }
    }
}

impl crate::relay::Doorbell for Doorbell {
    fn hears(&self) -> bool {
        self.session().is_some()
    }

    async fn awake(&self) {
        self.step(Session::take).await;
    }

    async fn leave(&self) -> Option<Vec<Inserting>> {
        self.step(async |session| {
            session.release(false).await?;
            session.inserting(&self.settings.schema).await
        })
        .await
    }

    async fn inserting(&self) -> Option<Vec<Inserting>> {
        self.step(async |session| session.inserting(&self.settings.schema).await).await
    }

    async fn ring(&self) {
        self.step(async |session| session.ring(&channel(&self.settings.schema), LOOK).await).await;
    }

    async fn hand_over(&self) {
        self.tell(false).await;
    }
}
