//! The doorbell: LISTEN without a NOTIFY in every transaction, on a direct connection of its own.
//!
//! A relay that is awake holds the advisory lock K, and the trigger on the outbox rings only when K is free. When to
//! take it, when to give it back and how to fall asleep without missing anybody is [`crate::relay`]'s; here is the
//! connection on which it happens, made again for ever.

pub(crate) mod facts;
mod line;
mod session;

use super::connect::{Db, Settings};
use super::error::Error;
use super::migrate::channel;
use crate::admin::health::{Health, Part};
use crate::admin::metrics::{BySide, Metrics};
use crate::admin::wakefulness::Wakefulness;
use crate::backoff::Backoff;
use crate::relay::Inserting;
use crate::stop::Stop;
use crate::wake::Wake;
use line::{Line, Messages, PROBE, TRY, drive};
use session::Session;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_postgres::Notification;

/// How often the connection is tried, so that a peer that vanished without a word is noticed, and so that the server
/// does not end the session (see [`session`]).
const TOUCH: Duration = Duration::from_secs(10);

/// Touches after which a LISTEN connection that is deaf is tried again: somebody may have moved the pooler.
const RETRY: u32 = 3;

/// How soon a trigger that is missing is looked for again: somebody is told to run `migrate`, and waits to see it work.
const TRIGGER: Duration = Duration::from_secs(2);

/// How long the word to other relays may take at the stop.
const HAND_OVER: Duration = Duration::from_secs(1);

/// The loop's name where signs of life are kept.
const LOOP: &str = "listener";

/// The same in the metrics.
const SIDE: &str = "listener";

/// How long to wait between two connects.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// What a ring says: nothing, look once.
const PLAIN: &str = "";

/// What a ring says: a relay that was awake gives up, and there may be inserts that rang for nobody.
const OVER: &str = "over";

/// The doorbell of one outbox.
#[derive(Debug)]
pub struct Doorbell {
    settings: Settings,
    db: Db,
    wake: Arc<Wake>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// There while producers' rings are heard.
    session: Mutex<Option<Arc<Session>>>,
}

impl Doorbell {
    /// A doorbell on a connection to `settings`, tried out by ringing through `db`; nobody listens before [`run`].
    ///
    /// [`run`]: Doorbell::run
    #[must_use]
    pub fn new(settings: Settings, db: Db, wake: Arc<Wake>, (health, metrics): (Arc<Health>, Arc<Metrics>)) -> Self {
        Self { settings, db, wake, health, metrics, session: Mutex::default() }
    }

    /// Listens until the stop, reconnecting for ever.
    pub async fn run(&self, stop: &Stop) {
        let (mut failures, mut before) = (0, None);
        while !stop.raised() {
            self.health.beat(LOOP, self.stall());
            let again = before.is_some();
            let Some(connected) = Box::pin(stop.or(self.connect(&mut before))).await else { break };
            let ended = match connected {
                Ok(line) => {
                    failures = 0;
                    if again && line.fault.is_none() {
                        self.metrics.reconnects.get_or_create(&BySide { side: SIDE }).inc();
                    }
                    Box::pin(self.stay(line, stop)).await
                }
                Err(error) => Err(error),
            };
            self.session().take();
            failures += 1;
            if let Err(error) = ended {
                self.fault(&error);
                // Whoever sleeps until the next ring has to begin polling.
                self.wake.alarm();
            }
            if stop.or(tokio::time::sleep(RECONNECT.wait(failures))).await.is_none() {
                break;
            }
        }
    }

    /// Tries it out once: why producers would not be heard.
    ///
    /// # Errors
    /// No connection can be had.
    pub async fn check(&self) -> Result<Option<String>, Error> {
        Box::pin(self.connect(&mut None)).await.map(|line| line.fault)
    }

    /// How long a turn may take: a connect and its first statements, or a touch, and a machine under load.
    fn stall(&self) -> Duration {
        self.settings.reach() + self.settings.connect_timeout + PROBE + self.settings.patience() + TOUCH * 4
    }

    /// Producers are not heard.
    fn fault(&self, why: &impl std::fmt::Display) {
        self.metrics.set_up(SIDE, false);
        // The relay is told to poll, which may take it a while; where it cannot, it will not.
        let now = if self.health.both_up() { Wakefulness::Polling } else { Wakefulness::Away };
        let meanwhile = if now == Wakefulness::Polling { "; polling meanwhile" } else { "" };
        self.metrics.set_wakefulness(&now);
        self.health.set_wakefulness(now);
        self.health.problem(&Part::Listener, &format!("{why}{meanwhile}"));
    }

    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens on a connection until it fails (or it is time to see whether one that is deaf still is), or the stop.
    async fn stay(&self, Line { mut messages, session, fault, rings }: Line, stop: &Stop) -> Result<(), Error> {
        match &fault {
            Some(fault) => self.fault(fault),
            None => {
                *self.session() = Some(Arc::clone(&session));
                self.metrics.set_up(SIDE, true);
                self.health.well(&Part::Listener);
            }
        }
        // What was committed before was announced to nobody.
        self.wake.alarm();
        let moved = self.db.moved();
        let mut moved = std::pin::pin!(moved.changed());
        for touches in 1_u32.. {
            self.health.beat(LOOP, self.stall());
            let touch = async {
                tokio::select! {
                    () = stop.wait() => {
                        // In vain when the server cannot be reached; then K goes with the session.
                        let word = self.step(async |session| {
                            session.give_up().await?;
                            session.ring(&channel(&self.settings.schema), OVER).await
                        });
                        drop(tokio::time::timeout(HAND_OVER, word).await);
                        Ok(true)
                    }
                    error = session.failed() => Err(error),
                    () = &mut moved => Err(Error::ReadOnly { what: "listen" }),
                    () = tokio::time::sleep(if rings { TOUCH } else { TRIGGER }) => {
                        let silent = session.touch(&self.settings.schema, TOUCH / 2).await;
                        silent.and_then(|why| match why {
                            Some(why) if rings => Err(Error::Unexpected(why)),
                            // Whether it rings now, or still does not: good for a new line.
                            why => Ok(!rings && why.is_none()),
                        })
                    },
                }
            };
            match (Box::pin(self.drive(&mut messages, session.pid, touch)).await?, &fault) {
                (true, _) => break,
                // What other relays and requeue ring was heard all the same, if anything was.
                (false, Some(fault)) if rings && touches >= RETRY => return Err(Error::Unexpected(fault.clone())),
                (false, _) => {}
            }
        }
        Ok(())
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

    /// Runs a step on the session, if there is one. One that fails ends the connection: nobody hears then.
    async fn step<T>(&self, step: impl AsyncFnOnce(&Session) -> Result<T, Error>) -> Option<T> {
        let session = self.session().clone()?;
        match step(&session).await {
            Ok(done) => Some(done),
            Err(error) => {
                self.session().take_if(|now| Arc::ptr_eq(now, &session));
                session.fail(&error);
                None
            }
        }
    }
}

impl crate::relay::Doorbell for Doorbell {
    fn hears(&self) -> bool {
        self.session().is_some()
    }

    async fn take(&self) {
        self.step(Session::take).await;
    }

    async fn release(&self) -> Option<Vec<Inserting>> {
        self.step(async |session| {
            session.release().await?;
            session.inserting(&self.settings.schema).await
        })
        .await
    }

    async fn inserting(&self) -> Option<Vec<Inserting>> {
        self.step(async |session| session.inserting(&self.settings.schema).await).await
    }

    async fn ring(&self) {
        self.step(async |session| session.ring(&channel(&self.settings.schema), PLAIN).await).await;
    }

    async fn stand_back(&self) {
        // Whether we have K or not: we may be the one that waits for somebody who saw it held, or the only one that knows
        // when a row falls due.
        self.step(async |session| {
            session.release().await?;
            session.ring(&channel(&self.settings.schema), OVER).await
        })
        .await;
    }
}
