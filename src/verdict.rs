//! What became of one message in one attempt: the table of DESIGN section 5, owned by [`judge`] alone.
//!
//! ```text
//! outcomes of a batch ──judge──▶ Decided: a verdict per message ──▶ settle, commit
//!                           └──▶ Unknown: nothing may be written ─▶ roll back, publish again with the same message_id
//! ```

use crate::tier::Hop;
use std::collections::BTreeMap;

/// What the broker side saw happen to one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged, and not returned.
    Acked,
    /// Came back as unroutable, with the broker's text.
    Returned(String),
    /// Negatively acknowledged: the queue is full or failed.
    Nacked,
    /// Failed the checks before publishing; it never left.
    Invalid(String),
    /// The broker closed the channel with this code.
    ChannelClosed {
        /// AMQP reply code.
        code: u16,
        /// The broker's text.
        text: String,
    },
    /// No answer: connection lost, deadline missed, blocked, or confirms were off.
    Lost(String),
}

/// One published message, as [`judge`] needs it.
#[derive(Debug, Clone)]
pub struct Attempt<'a> {
    /// Where it was published.
    pub hop: &'a Hop,
    /// The row named the routing key itself.
    pub row_key: bool,
    /// What happened.
    pub outcome: Outcome,
}

/// What became of one message; every one but `Sent` is logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The broker has it.
    Sent,
    /// Its own routing key reaches nothing: counts as an attempt.
    Unroutable(String),
    /// Refused for now; the row is not to blame.
    Refused(String),
    /// Its hop is in trouble; the row is not to blame.
    HopTrouble(String),
    /// It can never be published as it is.
    Bad(String),
}

/// Why a batch is unknown, which decides what happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The broker closed the channel over an exchange that is missing or not permitted.
    Hop,
    /// The broker refused one message of several without naming it: publish one at a time.
    OneOfSeveral,
    /// No answer from the broker.
    NoAnswer,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Every outcome is known.
    Decided {
        /// One verdict per attempt, in order.
        verdicts: Vec<Verdict>,
        /// Hops in trouble, with the reason.
        troubles: BTreeMap<Hop, String>,
        /// Hops that refused some, or the only one; whether they took any.
        refusing: BTreeMap<Hop, bool>,
        /// Hops that acknowledged at least one message and are in no trouble.
        healthy: Vec<Hop>,
    },
    /// At least one outcome is unknown, so the batch is unknown as a whole.
    Unknown {
        /// What the log says.
        reason: String,
        /// What to do next.
        cause: Cause,
        /// Hops in trouble, with the reason.
        troubles: BTreeMap<Hop, String>,
    },
}

/// Judges a batch from all of its outcomes.
///
/// Nothing is decided from one confirm alone: the client hands a return to whichever confirm resolves next, so the
/// outcomes must already have been matched by the identity that the returned message carries.
#[must_use]
pub fn judge(attempts: &[Attempt<'_>]) -> Judgement {
    if let Some(unknown) = unknown(attempts) {
        return unknown;
    }
    let groups = group(attempts);
    let mut troubles = BTreeMap::new();
    let mut refusing = BTreeMap::new();
    let mut healthy = Vec::new();
    for (hop, seen) in &groups {
        if let Some(text) = &seen.returned {
            troubles.insert((*hop).clone(), format!("{hop} returned a message as unroutable ({text})"));
        } else if seen.nacked > 1 && seen.nacked == seen.published {
            troubles.insert((*hop).clone(), format!("{hop} refused all of {} messages", seen.published));
        } else if seen.nacked > 0 {
            refusing.insert((*hop).clone(), seen.acked > 0);
        } else if seen.acked > 0 {
            healthy.push((*hop).clone());
        }
    }
    let verdicts = attempts.iter().map(|attempt| verdict(attempt, &troubles)).collect();
    Judgement::Decided { verdicts, troubles, refusing, healthy }
}

/// The verdict of one message whose outcome is known.
fn verdict(attempt: &Attempt<'_>, troubles: &BTreeMap<Hop, String>) -> Verdict {
    match &attempt.outcome {
        Outcome::Acked => Verdict::Sent,
        Outcome::Returned(text) if attempt.row_key => Verdict::Unroutable(format!(
            "{text}: nothing is bound to {}; bind a queue, or correct the key",
            attempt.hop
        )),
        Outcome::Returned(text) if attempt.hop.exchange.is_empty() => {
            Verdict::HopTrouble(format!("{text}: {} is not there", attempt.hop))
        }
        Outcome::Returned(text) => {
            Verdict::HopTrouble(format!("{text}: nothing is bound to {}; bind a queue with that key", attempt.hop))
        }
        Outcome::Nacked => match troubles.get(attempt.hop) {
            Some(reason) => Verdict::HopTrouble(reason.clone()),
            None => Verdict::Refused(format!("{} refused it (full, or failing)", attempt.hop)),
        },
        Outcome::Invalid(reason) => Verdict::Bad(reason.clone()),
        // Only a message alone on its channel gets here: see `unknown`.
        Outcome::ChannelClosed { code, text } => Verdict::Bad(format!("the broker refused it: {code} {text}")),
        Outcome::Lost(reason) => Verdict::Refused(reason.clone()),
    }
}

/// The judgement of a batch with an unknown outcome, if it has one.
fn unknown(attempts: &[Attempt<'_>]) -> Option<Judgement> {
    let in_flight = attempts.iter().filter(|a| !matches!(a.outcome, Outcome::Invalid(_))).count();
    let closed = attempts
        .iter()
        .find_map(|a| if let Outcome::ChannelClosed { code, text } = &a.outcome { Some((*code, text)) } else { None });
    if let Some((code, text)) = closed {
        let cause = match code {
            403..=405 => Cause::Hop,
            406 if in_flight > 1 => Cause::OneOfSeveral,
            406 => return None,
            _ => Cause::NoAnswer,
        };
        let reason = format!("the broker closed the channel: {code} {text}");
        let troubles = if cause == Cause::Hop { blamed(attempts, text, &reason) } else { BTreeMap::new() };
        return Some(Judgement::Unknown { reason, cause, troubles });
    }
    let lost = attempts
        .iter()
        .find_map(|a| if let Outcome::Lost(reason) = &a.outcome { Some(reason.clone()) } else { None })?;
    Some(Judgement::Unknown { reason: lost, cause: Cause::NoAnswer, troubles: BTreeMap::new() })
}

/// The hops that the broker's text is about: those whose exchange it quotes, or all when it quotes none.
fn blamed(attempts: &[Attempt<'_>], text: &str, reason: &str) -> BTreeMap<Hop, String> {
    let quoted = |hop: &Hop| text.contains(&format!("'{}'", hop.exchange));
    let named: Vec<&Hop> = attempts.iter().map(|a| a.hop).filter(|hop| quoted(hop)).collect();
    let hops = if named.is_empty() { attempts.iter().map(|a| a.hop).collect() } else { named };
    hops.into_iter().map(|hop| (hop.clone(), reason.to_owned())).collect()
}

/// What one hop did with its share of a batch.
#[derive(Default)]
struct Seen {
    published: usize,
    acked: usize,
    nacked: usize,
    /// A return that is not the row's own fault.
    returned: Option<String>,
}

fn group<'a>(attempts: &'a [Attempt<'_>]) -> BTreeMap<&'a Hop, Seen> {
    let mut groups: BTreeMap<&Hop, Seen> = BTreeMap::new();
    for attempt in attempts {
        let seen = groups.entry(attempt.hop).or_default();
        match &attempt.outcome {
            Outcome::Acked => seen.acked += 1,
            Outcome::Nacked => seen.nacked += 1,
            Outcome::Returned(text) if !attempt.row_key => seen.returned = Some(text.clone()),
            Outcome::Returned(_) | Outcome::ChannelClosed { .. } | Outcome::Lost(_) => {}
            Outcome::Invalid(_) => continue,
        }
        seen.published += 1;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(name: &str) -> Hop {
        Hop::queue(name)
    }

    fn attempts<'a>(hop: &'a Hop, row_key: bool, outcomes: &[Outcome]) -> Vec<Attempt<'a>> {
        outcomes.iter().map(|outcome| Attempt { hop, row_key, outcome: outcome.clone() }).collect()
    }

    fn decided(attempts: &[Attempt<'_>]) -> (Vec<Verdict>, usize) {
        match judge(attempts) {
            Judgement::Decided { verdicts, troubles, .. } => (verdicts, troubles.len()),
            unknown => panic!("{unknown:?}"),
        }
    }

    fn cause(attempts: &[Attempt<'_>]) -> (Cause, usize) {
        match judge(attempts) {
            Judgement::Unknown { cause, troubles, .. } => (cause, troubles.len()),
            decided => panic!("{decided:?}"),
        }
    }

    fn closed(code: u16) -> Outcome {
        Outcome::ChannelClosed { code, text: "NOT_FOUND - no exchange 'x' in vhost '/'".into() }
    }

    #[test]
    fn only_an_ack_without_a_return_is_sent() {
        let q = hop("q");
        let returned = Outcome::Returned("312 NO_ROUTE".into());
        let (verdicts, troubles) = decided(&attempts(&q, true, &[Outcome::Acked, returned.clone()]));
        assert_eq!(verdicts[0], Verdict::Sent);
        assert!(matches!(verdicts[1], Verdict::Unroutable(_)));
        assert_eq!(troubles, 0, "a row's own key is no trouble of the hop");
        let (verdicts, troubles) = decided(&attempts(&q, false, &[Outcome::Acked, returned]));
        assert!(matches!(verdicts[1], Verdict::HopTrouble(_)));
        assert_eq!(troubles, 1);
    }

    #[test]
    fn some_nacks_are_refusals_and_all_of_several_are_trouble() {
        let q = hop("q");
        let (verdicts, troubles) = decided(&attempts(&q, false, &[Outcome::Acked, Outcome::Nacked]));
        assert!(matches!(verdicts[1], Verdict::Refused(_)));
        assert_eq!(troubles, 0);
        let (verdicts, troubles) = decided(&attempts(&q, false, &[Outcome::Nacked, Outcome::Nacked]));
        assert!(verdicts.iter().all(|v| matches!(v, Verdict::HopTrouble(_))));
        assert_eq!(troubles, 1);
        let (verdicts, troubles) = decided(&attempts(&q, false, &[Outcome::Nacked]));
        assert!(matches!(verdicts[0], Verdict::Refused(_)));
        assert_eq!(troubles, 0, "one alone says nothing about the hop");
    }

    #[test]
    fn trouble_stays_with_its_hop() {
        let (good, full) = (hop("good"), hop("full"));
        let mut batch = attempts(&good, true, &[Outcome::Acked]);
        batch.extend(attempts(&full, true, &[Outcome::Nacked, Outcome::Nacked]));
        let Judgement::Decided { verdicts, troubles, healthy, .. } = judge(&batch) else { panic!("unknown") };
        assert_eq!(verdicts[0], Verdict::Sent);
        assert_eq!(troubles.keys().collect::<Vec<_>>(), [&full]);
        assert_eq!(healthy, [good]);
    }

    #[test]
    fn one_unknown_outcome_makes_the_batch_unknown() {
        let q = hop("q");
        let lost = Outcome::Lost("connection reset".into());
        assert_eq!(cause(&attempts(&q, false, &[Outcome::Acked, lost])), (Cause::NoAnswer, 0));
    }

    #[test]
    fn a_closed_channel_blames_the_hop_the_row_or_nobody() {
        let x = Hop { exchange: "x".into(), routing_key: "k".into() };
        let q = hop("q");
        let mut batch = attempts(&x, false, &[closed(404)]);
        batch.extend(attempts(&q, false, &[closed(404)]));
        for code in [403, 404, 405] {
            let batch: Vec<_> = batch.iter().map(|a| Attempt { outcome: closed(code), ..a.clone() }).collect();
            let Judgement::Unknown { cause, troubles, .. } = judge(&batch) else { panic!("decided") };
            assert_eq!(cause, Cause::Hop);
            assert_eq!(troubles.keys().collect::<Vec<_>>(), [&x], "the text quotes exchange x");
        }
        assert_eq!(cause(&attempts(&q, false, &[closed(406), closed(406)])), (Cause::OneOfSeveral, 0));
        assert_eq!(cause(&attempts(&q, false, &[closed(504)])), (Cause::NoAnswer, 0));
        let (verdicts, _) = decided(&attempts(&q, false, &[closed(406), Outcome::Invalid("x".into())]));
        assert!(verdicts.iter().all(|v| matches!(v, Verdict::Bad(_))), "406 alone is the row's");
    }
}
