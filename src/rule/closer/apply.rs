//! One message: which order it is about, whether that is closed now, and what becomes of the message then.

use super::checks;
use super::order_id::order_id;
use super::pause;
use super::plan::Home;
use super::prepared::Hindrance;
use super::rows::Row;
use super::{BY, Closer, Work};
use crate::outbox::error::Error;
use crate::rule::close;
use crate::rule::closing::{Closing, Kept};
use crate::rule::port::Receipt;
use crate::rule::tell::FAILED;
use crate::words::shown_short;
use std::time::{Duration, SystemTime};

/// How early a message may be and still wait here.
const NEAR: Duration = Duration::from_secs(5);

/// What becomes of a delivery.
pub(super) enum Fate {
    /// Nothing is left to do about it.
    Done,
    /// It is looked at again, still unacked, after this time.
    Later(Duration),
}

/// Why an order was not looked at, or not closed.
enum Trouble {
    /// The database is away.
    Away,
    /// The database ended the session, and answers others.
    Ended(String),
    /// The column cannot have such an id.
    BadId(String),
    /// Everything else counts.
    Failed(String),
    /// The stop has come.
    Stopped,
}

impl<R: Receipt> Closer<R> {
    /// Does what is to be done about one message now.
    pub(super) async fn apply(&self, work: &mut Work<R>) -> Fate {
        let delivery = &work.delivery;
        let rule = match self.plan.rule(&delivery.queue, delivery.tier.as_deref()) {
            Ok(rule) => rule,
            Err(reason) => return self.park(work, None, None, &reason).await,
        };
        let pointer = self.rules.get(rule).and_then(|rule| rule.id_pointer.as_deref());
        let id = match order_id(delivery, rule, pointer) {
            Ok(id) => id,
            Err(reason) => return self.park(work, Some(rule), None, &reason).await,
        };
        match self.stop.or(self.pause.holds(&self.db)).await {
            None => return Fate::Later(Duration::ZERO),
            Some(true) => return self.kept(work, rule, &id, Kept::AskerPaused).await,
            Some(false) => {}
        }
        let closing = self.close(rule, &id).await;
        match &closing {
            Err(Trouble::Away | Trouble::Stopped) | Ok(Closing::Kept(Kept::Unready)) => {}
            Err(Trouble::Ended(_)) => work.waits.heard(),
            _ => work.waits.asked(),
        }
        match closing {
            Ok(closing @ Closing::Closed(_)) => {
                self.tell(work, rule, &id, &closing);
                Fate::Done
            }
            Ok(Closing::Kept(kept)) => self.kept(work, rule, &id, kept).await,
            Err(Trouble::Away) => Fate::Later(work.waits.away()),
            Err(Trouble::Ended(reason)) => match work.waits.ended() {
                Some(wait) => Fate::Later(wait),
                None => self.failed(work, rule, &id, &reason).await,
            },
            Err(Trouble::Stopped) => Fate::Later(Duration::ZERO),
            Err(Trouble::BadId(reason)) => self.park(work, Some(rule), Some(&id), &reason).await,
            Err(Trouble::Failed(reason)) => self.failed(work, rule, &id, &reason).await,
        }
    }

    /// Closes the order if it is to be closed.
    async fn close(&self, rule: &str, id: &str) -> Result<Closing, Trouble> {
        let Some(config) = self.rules.get(rule) else { return Err(Trouble::Failed(format!("no rule {rule}"))) };
        let prepared = self.prepared.orders(&self.db, (rule, config), &self.health);
        let orders = match self.stop.or(prepared).await.ok_or(Trouble::Stopped)? {
            Ok(orders) => orders,
            Err(Hindrance::Database) => return Err(Trouble::Away),
            Err(Hindrance::Rule) => return Ok(Closing::Kept(Kept::Unready)),
        };
        let patience = self.patience.take(self.room.has_ready());
        // Not given up at the stop: what was closed is to be told.
        let closing = close::one(&self.db, &orders, (id, patience.length()), BY).await;
        drop(patience);
        let error = match closing {
            Ok(closing) => {
                self.losses.none();
                if closing == Closing::Kept(Kept::Unready) {
                    self.prepared.doubt(rule);
                }
                return Ok(closing);
            }
            Err(error) => error,
        };
        if error.is_gone() {
            tracing::debug!(rule, order = id, %error, "the closer waits: {error}");
            self.losses.one(rule, &error);
            let ended = close::is_its_doing(&error) && close::is_its_end(&self.db, &error).await;
            return Err(if ended { Trouble::Ended(close::ended(&error)) } else { Trouble::Away });
        }
        self.losses.none();
        if error.is_conflict() {
            return Ok(Closing::Kept(Kept::Locked));
        }
        if close::is_bad_id(&error) {
            // Under statements of a while ago the column may have had another type.
            if self.prepared.doubt_old(rule, &orders) {
                return Ok(Closing::Kept(Kept::Unready));
            }
            return Err(Trouble::BadId(format!("'{}' is no id of {}: {error}", shown_short(id), config.table)));
        }
        // The table may have changed.
        self.prepared.doubt(rule);
        Err(Trouble::Failed(error.to_string()))
    }

    /// What becomes of the message of an order that was left as it is.
    async fn kept(&self, work: &mut Work<R>, rule: &str, id: &str, kept: Kept) -> Fate {
        let full = self.room.waiting(&work.delivery.queue) >= self.prefetch / 2;
        match kept {
            Kept::Early { left, due_at } => {
                let checks = self.rules.get(rule).map_or(&[][..], |rule| &rule.checks);
                let look = checks::next(checks, due_at, due_at - left);
                let left = left.saturating_sub(due_at.duration_since(look).unwrap_or_default());
                if left > NEAR || full {
                    return self.hold(work, rule, id, &kept, Some(look)).await;
                }
                self.count(rule, &kept);
                // A timer may be up to a millisecond early.
                Fate::Later(left + Duration::from_millis(1))
            }
            // In the room they would keep the messages of others out, of another rule's too.
            Kept::Locked | Kept::Slow | Kept::Unready if full => {
                self.crowd.one(rule, self.rules.get(rule).map_or("", |rule| rule.table.as_str()), &kept);
                self.hold(work, rule, id, &kept, None).await
            }
            Kept::Locked | Kept::Slow => {
                self.count(rule, &kept);
                let (long, wait) = work.waits.locked();
                if long {
                    let (id, reason) = (shown_short(id), kept.reason());
                    tracing::warn!(order = id, rule, reason, "rule {rule}: order {id} is waited for, for long: {kept}");
                }
                Fate::Later(wait)
            }
            Kept::Unready => {
                self.count(rule, &kept);
                Fate::Later(work.waits.away())
            }
            Kept::AskerPaused => {
                self.pause.met();
                if work.waits.paused() {
                    self.count(rule, &kept);
                }
                Fate::Later(pause::LOOK)
            }
            Kept::Unknown
            | Kept::Status(_)
            | Kept::Undated
            | Kept::Paused
            | Kept::Guarded
            | Kept::NotBefore
            | Kept::Observed
            | Kept::Declined => {
                self.tell(work, rule, id, &Closing::Kept(kept));
                Fate::Done
            }
        }
    }

    /// Holds the message in the outbox: until its order is due, or for half a minute.
    async fn hold(&self, work: &mut Work<R>, rule: &str, id: &str, kept: &Kept, until: Option<SystemTime>) -> Fate {
        let Some(home) = self.home(work) else { return Fate::Later(work.waits.unwritten()) };
        let row = Row::new(&work.delivery, &home, Some(id));
        match self.stop.or(row.hold(&self.db, (rule, id), until)).await {
            Some(Ok(())) => {
                self.tell_held(work, rule, id, kept, until);
                Fate::Done
            }
            Some(Err(error)) => Self::unwritten(work, &error),
            None => Fate::Later(Duration::ZERO),
        }
    }

    /// Parks the message, with the reason.
    async fn park(&self, work: &mut Work<R>, rule: Option<&str>, id: Option<&str>, reason: &str) -> Fate {
        let Some(home) = self.home(work) else { return Fate::Later(work.waits.unwritten()) };
        let row = Row::new(&work.delivery, &home, id);
        match self.stop.or(row.park(&self.db, reason)).await {
            Some(Ok(parked)) => {
                self.tell_parked(work, rule, id, reason, parked);
                Fate::Done
            }
            Some(Err(error)) => Self::unwritten(work, &error),
            None => Fate::Later(Duration::ZERO),
        }
    }

    fn home(&self, work: &Work<R>) -> Option<Home> {
        self.plan.home(&work.delivery.queue, work.delivery.tier.as_deref())
    }

    /// A failure that counts: tried again, and parked at the last.
    async fn failed(&self, work: &mut Work<R>, rule: &str, id: &str, reason: &str) -> Fate {
        let (attempt, wait) = work.waits.failed();
        self.metrics.rules.refused(rule, BY, FAILED);
        let (shown, action) = (shown_short(id), self.rules.get(rule).map(|rule| &rule.action));
        let said = action.map_or_else(String::new, |action| action.said("could not", &format!("order {shown}")));
        let most = self.max_attempts;
        if attempt >= most {
            let reason = format!("{said}: {reason} (attempt {attempt}, the last)");
            return self.park(work, Some(rule), Some(id), &reason).await;
        }
        tracing::warn!(
            order = shown,
            rule,
            by = BY,
            attempt,
            "rule {rule}: {said} (attempt {attempt} of {most}): {reason}"
        );
        Fate::Later(wait)
    }

    /// A row was not written, so the message is not acked.
    fn unwritten(work: &mut Work<R>, error: &Error) -> Fate {
        if error.is_away() {
            return Fate::Later(work.waits.away());
        }
        tracing::warn!(queue = work.delivery.queue, %error, "a message stays in its queue: {error}");
        Fate::Later(work.waits.unwritten())
    }
}
