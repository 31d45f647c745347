//! From confirms to outcomes: each return is matched by the row id and batch number that it carries.
//!
//! lapin hands a `basic.return` to whichever confirm of the channel resolves next, so an unroutable message can resolve
//! as a plain ack (measured: up to 11 % of them). Believing the confirm that carried it would mark lost messages sent.

use super::error::{channel_closed, describe};
use super::headers::{BATCH, ROW};
use crate::verdict::Outcome;
use lapin::message::BasicReturnMessage;
use lapin::types::AMQPValue;
use lapin::{Confirmation, ErrorKind};
use std::collections::HashMap;

/// What came back for one message.
#[derive(Debug)]
pub(super) enum Answer {
    /// It never left: the reason.
    Invalid(String),
    /// The broker's confirm.
    Confirmation(Box<Confirmation>),
    /// The client's error.
    Error(lapin::Error),
}

/// The outcome of every message of batch `batch`, from all of its answers; `rows` are the row ids in the same order.
pub(super) fn outcomes(batch: u64, rows: &[i64], answers: Vec<Answer>) -> Vec<Outcome> {
    let mut returned: HashMap<i64, String> = HashMap::new();
    let plain: Vec<Outcome> = answers
        .into_iter()
        .map(|answer| match answer {
            Answer::Invalid(reason) => Outcome::Invalid(reason),
            Answer::Error(error) => failed(&error),
            Answer::Confirmation(confirmation) => {
                let (outcome, carried) = match *confirmation {
                    Confirmation::Ack(carried) => (Outcome::Acked, carried),
                    Confirmation::Nack(carried) => (Outcome::Nacked, carried),
                    Confirmation::NotRequested => (Outcome::Lost(NOT_REQUESTED.to_owned()), None),
                };
                if let Some((row, text)) = carried.and_then(|message| identify(batch, &message)) {
                    returned.insert(row, text);
                }
                outcome
            }
        })
        .collect();
    let judged = rows.iter().zip(plain);
    judged.map(|(row, outcome)| returned.remove(row).map_or(outcome, Outcome::Returned)).collect()
}

/// Confirms were never switched on: a bug, and never success.
const NOT_REQUESTED: &str = "the channel was not in confirm mode";

/// The row of a returned message, if it belongs to this batch.
fn identify(batch: u64, message: &BasicReturnMessage) -> Option<(i64, String)> {
    let headers = message.delivery.properties.headers().as_ref()?.inner();
    let number = |name: &str| match headers.get(name) {
        Some(AMQPValue::LongLongInt(value)) => Some(*value),
        _ => None,
    };
    if u64::try_from(number(BATCH)?) != Ok(batch) {
        tracing::error!("a message of another batch came back on this channel; it has been settled already");
        return None;
    }
    Some((number(ROW)?, format!("{} {}", message.reply_code, message.reply_text)))
}

fn failed(error: &lapin::Error) -> Outcome {
    match channel_closed(error) {
        Some((code, text)) => Outcome::ChannelClosed { code, text },
        None if matches!(error.kind(), ErrorKind::SerialisationError(_)) => {
            Outcome::Invalid(format!("it cannot be written as AMQP: {error}"))
        }
        None => Outcome::Lost(describe(error)),
    }
}
