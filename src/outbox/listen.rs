//! LISTEN: a connection of its own that turns notifications into rings.
//!
//! Notifications are drained at all times: a listener that lags pins the server's notification queue. Each reconnect
//! rings once, because what was committed meanwhile was announced to nobody.

use super::connect::{Settings, alone, prepare_session, within};
use super::error::{Error, describe};
use super::migrate::{channel, quote_ident};
use crate::admin::health::{Health, Part};
use crate::backoff::Backoff;
use crate::stop::Stop;
use crate::wake::Wake;
use futures_util::stream::{self, StreamExt};
use std::time::Duration;
use tokio_postgres::AsyncMessage;

/// How often the connection is tried, so that a peer that vanished without a word is noticed.
const TOUCH: Duration = Duration::from_secs(10);

/// The loop's name where signs of life are kept.
const LOOP: &str = "listener";

/// How long to wait between two connects.
const RECONNECT: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// Listens until the stop, reconnecting for ever.
pub async fn run(settings: &Settings, wake: &Wake, health: &Health, stop: &Stop) {
    let mut failures = 0;
    while !stop.raised() {
        health.beat(LOOP, stall(settings));
        let Some(ended) = stop.or(listen(settings, wake, health, &mut failures)).await else { return };
        failures += 1;
        if let Err(error) = ended {
            health.problem(&Part::Listener, &format!("{error}; polling meanwhile"));
            // Whoever sleeps until the next ring has to begin polling.
            wake.ring();
        }
        if stop.or(tokio::time::sleep(RECONNECT.wait(failures))).await.is_none() {
            return;
        }
    }
}

/// How long a turn may take: a connect and its first statements, or a touch, and a machine under load.
fn stall(settings: &Settings) -> Duration {
    settings.connect_timeout + settings.patience() + TOUCH * 4
}

/// One connection's life.
async fn listen(settings: &Settings, wake: &Wake, health: &Health, failures: &mut u32) -> Result<(), Error> {
    let (client, mut connection) = alone(settings, "duebox listen").await?;
    let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
    let subscribe = async {
        prepare_session(&client, settings).await?;
        let listen = format!("listen {}", quote_ident(&channel(&settings.schema)));
        within("listen", settings.connect_timeout, async {
            client.batch_execute(&listen).await.map_err(Error::statement("listen"))
        })
        .await
    };
    drive(&mut messages, wake, subscribe).await?;
    *failures = 0;
    health.well(&Part::Listener);
    wake.ring();
    loop {
        health.beat(LOOP, stall(settings));
        let touch = async {
            tokio::time::sleep(TOUCH).await;
            within("touch the LISTEN connection", TOUCH / 2, async {
                client.batch_execute("").await.map_err(Error::statement("touch the LISTEN connection"))
            })
            .await
        };
        drive(&mut messages, wake, touch).await?;
    }
}

/// Drains messages, ringing for each notification, until `work` is done.
async fn drive(
    messages: &mut (impl StreamExt<Item = Result<AsyncMessage, tokio_postgres::Error>> + Unpin),
    wake: &Wake,
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(_))) => wake.ring(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::Connect(describe(&error))),
                None => return Err(Error::Connect("the server closed the LISTEN connection".to_owned())),
            },
        }
    }
}
