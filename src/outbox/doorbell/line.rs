//! A connection that listens, and whether producers are heard on it.

use super::session::{self, RING, Session};
use super::{Doorbell, Error};
use crate::outbox::connect::{alone, within};
use crate::outbox::error::describe;
use crate::outbox::migrate::{channel, quote_ident};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Notification};

/// How long our own ring may take to come back; a transaction pooler swallows it.
pub(super) const PROBE: Duration = Duration::from_secs(2);

/// How a ring begins that is only meant for the relay that rang it.
pub(super) const TRY: &str = "try ";

pub(super) type Messages = dyn futures_util::Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send + Unpin;

/// A connection that listens.
pub(super) struct Line {
    pub(super) messages: Box<Messages>,
    pub(super) session: Arc<Session>,
    /// Why producers are not heard on it.
    pub(super) fault: Option<String>,
    /// The trigger is as it must be: whatever the fault is, it is another.
    pub(super) rings: bool,
}

impl Doorbell {
    /// A connection that listens, and hears producers if it can. `before` is the session of the one before it.
    pub(super) async fn connect(&self, before: &mut Option<(i32, SystemTime)>) -> Result<Line, Error> {
        let (client, mut connection) = alone(&self.settings, "duebox listen").await?;
        let mut messages: Box<Messages> = Box::new(stream::poll_fn(move |cx| connection.poll_message(cx)));
        let limit = self.settings.connect_timeout;
        let setup = within("set up LISTEN", limit, async {
            let listen = format!("listen {}", quote_ident(&channel(&self.settings.schema)));
            client.batch_execute(&listen).await.map_err(Error::statement("listen"))?;
            session::facts(&client, &self.settings.schema, before.as_ref()).await
        });
        let facts = Box::pin(self.drive(&mut messages, 0, setup)).await?;
        let silent = facts.fault(&self.settings.schema);
        let rings = silent.is_none();
        let fault = if rings { self.deaf(&mut messages).await? } else { silent };
        if fault.is_none() {
            // Only now: behind a transaction pooler this would be another client's session.
            let keep = within("set up LISTEN", limit, session::keep(&client));
            self.drive(&mut messages, facts.pid, keep).await?;
            *before = Some((facts.pid, facts.since));
        }
        Ok(Line { messages, session: Arc::new(Session::new(client, &facts)), fault, rings })
    }

    /// Rings through the pool and waits for it: why it was not heard.
    async fn deaf(&self, messages: &mut Messages) -> Result<Option<String>, Error> {
        let (heard, token) = (Notify::new(), format!("{TRY}{}", uuid::Uuid::new_v4()));
        let channel = channel(&self.settings.schema);
        let ring = async {
            self.db
                .once("try whether a ring is heard", async |client| {
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
}

/// Drains messages, showing each notification to `on_note`, until `work` is done.
pub(super) async fn drive<T>(
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
                Some(Err(error)) => return Err(Error::Lost(describe(&error))),
                None => return Err(Error::Lost("the server closed the LISTEN connection".to_owned())),
            },
        }
    }
}
