//! The publisher: a channel in confirm mode, used by one task, with one batch in flight.

use super::error::{Error, within};
use super::headers::{properties, short};
use super::judge::{Answer, outcomes};
use super::link::{Link, Up};
use crate::message::Bounds;
use crate::relay::Outgoing;
use crate::verdict::Outcome;
use futures_util::future::join_all;
use lapin::Channel;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The wait before a channel is asked for again after the broker refused one.
const AGAIN: Duration = Duration::from_millis(500);

/// What a batch in flight still waits for its confirms when the broker blocks the connection: those of what slipped in
/// before it. After that its rows must not stay claimed.
const BLOCKED: Duration = Duration::from_millis(500);

/// A channel in confirm mode.
#[derive(Debug)]
pub struct Publisher {
    up: Arc<Up>,
    channel: Channel,
    bounds: Bounds,
    /// Missed a deadline or saw an error: its tags and returns are out of step, so it is never used again.
    spoilt: bool,
    /// Saw a refusal. A quorum queue that was full goes on refusing on this channel when its limit is taken away, because
    /// nobody tells the channel (measured, RabbitMQ 3.10): whoever tries again does so on a new one.
    refused: bool,
}

/// Waits until the link is up and not blocked, and opens a channel on it.
pub(super) async fn open(link: &Link) -> Publisher {
    let mut state = link.state.subscribe();
    loop {
        link.wanted.notify_one();
        let up = state.wait_for(Option::is_some).await.ok().and_then(|up| up.clone());
        let Some(up) = up else { continue };
        let mut blocked = up.blocked.subscribe();
        let another = |now: &Option<Arc<Up>>| now.as_ref().is_none_or(|now| now.id != up.id);
        tokio::select! {
            _lost = state.wait_for(another) => continue,
            _ = blocked.wait_for(|blocked| !blocked) => {}
        }
        let started = Instant::now();
        match channel(&up, link.settings.connect_timeout).await {
            Ok(channel) => {
                let frame_max = up.connection.configuration().frame_max() as usize;
                let bounds = Bounds { max_body: link.settings.max_message_bytes, frame_max };
                return Publisher { up, channel, bounds, spoilt: false, refused: false };
            }
            Err(error) => {
                tracing::debug!(%error, "no channel: {error}");
                if matches!(error, Error::Deadline { .. }) {
                    up.unanswered(started);
                }
                // Another connection is a reason to try at once.
                drop(tokio::time::timeout(AGAIN, state.wait_for(another)).await);
            }
        }
    }
}

async fn channel(up: &Up, limit: Duration) -> Result<Channel, Error> {
    within("open a channel", limit, async {
        let channel = up.connection.create_channel().await.map_err(Error::amqp("open a channel"))?;
        let options = ConfirmSelectOptions::default();
        channel.confirm_select(options).await.map_err(Error::amqp("switch confirms on"))?;
        Ok(channel)
    })
    .await
}

impl crate::relay::Publisher for Publisher {
    async fn publish(&mut self, batch: &[Outgoing<'_>], deadline: Duration) -> Vec<Outcome> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        // Polled in order by this one task, so delivery tags and frames stay in step.
        let sends = join_all(batch.iter().map(|out| one(&self.channel, out, number)));
        let mut blocked = self.up.blocked.subscribe();
        let until_blocked = async {
            drop(blocked.wait_for(|blocked| *blocked).await);
            tokio::time::sleep(BLOCKED).await;
        };
        let answers = tokio::select! {
            answers = tokio::time::timeout(deadline, sends) => answers.map_err(|_| format!("no confirm within {deadline:?}")),
            () = until_blocked => Err("the broker blocks publishing".to_owned()),
        };
        let answers = match answers {
            Ok(answers) => answers,
            Err(reason) => {
                // It costs the channel: its tags and returns are out of step. Dropped, lapin closes it.
                self.spoilt = true;
                self.up.unanswered(started);
                return batch.iter().map(|_| Outcome::Lost(reason.clone())).collect();
            }
        };
        let rows: Vec<i64> = batch.iter().map(|out| out.message.id).collect();
        let outcomes = outcomes(number, &rows, answers);
        self.spoilt = outcomes.iter().any(|o| matches!(o, Outcome::Lost(_) | Outcome::ChannelClosed { .. }));
        self.refused = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Nacked));
        if !self.spoilt {
            self.up.confirmed();
        }
        outcomes
    }

    fn usable(&self) -> bool {
        !self.spoilt
            && !self.refused
            && self.channel.status().connected()
            && self.up.connection.status().connected()
            && !*self.up.blocked.borrow()
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

/// Publishes one message and waits for its confirm.
async fn one(channel: &Channel, out: &Outgoing<'_>, batch: u64) -> Answer {
    let prepared = (|| Ok((short(&out.hop.exchange)?, short(&out.hop.routing_key)?, properties(out, batch)?)))();
    let (exchange, key, properties) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => return Answer::Invalid(reason),
    };
    let options = BasicPublishOptions { mandatory: out.mandatory, ..BasicPublishOptions::default() };
    // The first await ends when the frames are written to the socket, the second with the broker's word.
    let confirm = match channel.basic_publish(exchange, key, options, &out.message.body, properties).await {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    match confirm {
        Ok(confirmation) => Answer::Confirmation(Box::new(confirmation)),
        Err(error) => Answer::Error(error),
    }
}
