//! From verdicts to fates: what is written to each row. Pure; the clock comes in as a number.

use super::{Fate, Outgoing};
use crate::backoff::Backoff;
use crate::message::{Bounds, Row};
use crate::tier::{Hop, Route, RowTimes, Tier, Way};
use crate::verdict::Verdict;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is to be done with the rows of a batch: some are decided already, the rest goes out.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// Rows that are not published now, and their fate.
    pub(crate) decided: Vec<(i64, Fate)>,
    /// Messages to publish.
    pub(crate) outgoing: Vec<Outgoing<'a>>,
}

/// Plans a batch claimed at `now`. `gate` says how long a hop is closed for one more message, if it is.
pub(crate) fn plan<'a>(
    tier: &Tier,
    rows: &'a [Row],
    now: i64,
    bounds: &Bounds,
    mut gate: impl FnMut(&Hop) -> Option<Duration>,
) -> Plan<'a> {
    let mut plan = Plan { decided: Vec::new(), outgoing: Vec::new() };
    for row in rows {
        let message = match &row.message {
            Ok(message) => message,
            Err(reason) => {
                plan.decided.push((row.id, Fate::Parked { counted: false, reason: reason.clone() }));
                continue;
            }
        };
        if let Err(reason) = message.check(bounds) {
            plan.decided.push((row.id, Fate::Parked { counted: false, reason }));
            continue;
        }
        let times = RowTimes { created_at: message.created_at, due_at: message.due_at, now };
        let due = tier.due(&times);
        match tier.route(&times, message.routing_key.as_deref()) {
            Route::Publish { hop, way, row_key } => match gate(&hop) {
                None => {
                    // `mandatory = false` is the user's word about the target; whether our own delay queue is there is ours.
                    let (mandatory, wait) = match way {
                        Way::Straight => (tier.mandatory, None),
                        Way::DelayQueue => (true, None),
                        // It returns every message that it keeps, as if nothing were bound.
                        Way::Plugin(wait) => (false, Some(wait)),
                    };
                    plan.outgoing.push(Outgoing { message, hop, row_key, mandatory, wait, due });
                }
                Some(wait) => plan.decided.push((row.id, later(retry_at(due, now, wait), None))),
            },
            Route::Hold(until) => plan.decided.push((row.id, later(until, None))),
            Route::Bad(reason) => plan.decided.push((row.id, Fate::Parked { counted: false, reason })),
        }
    }
    plan
}

/// How rows that failed come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    /// Failures that count before a row is parked.
    pub(crate) max_attempts: u32,
    /// The wait between them.
    pub(crate) backoff: Backoff,
    /// The database's clock, microseconds since the Unix epoch.
    pub(crate) now: i64,
}

impl Retry {
    /// The fate of a message with this verdict; `waits` has the wait of each hop that refused something.
    pub(crate) fn fate(&self, outgoing: &Outgoing<'_>, verdict: &Verdict, waits: &BTreeMap<Hop, Duration>) -> Fate {
        match verdict {
            Verdict::Sent => Fate::Sent,
            Verdict::Bad(reason) => Fate::Parked { counted: false, reason: reason.clone() },
            Verdict::Unroutable(reason) => self.failed(outgoing, reason),
            Verdict::Refused(reason) | Verdict::HopTrouble(reason) => {
                let wait = waits.get(&outgoing.hop).copied().unwrap_or(self.backoff.min);
                later(retry_at(outgoing.due, self.now, wait), Some(reason.clone()))
            }
        }
    }

    /// A failure that counts against the row.
    pub(crate) fn failed(&self, outgoing: &Outgoing<'_>, reason: &str) -> Fate {
        let attempts = u32::try_from(outgoing.message.attempts).unwrap_or(0).saturating_add(1);
        if attempts >= self.max_attempts {
            return Fate::Parked { counted: true, reason: format!("{reason} (attempt {attempts}, the last)") };
        }
        let until = retry_at(i64::MIN, self.now, self.backoff.wait(attempts));
        Fate::Later { until, counted: true, reason: Some(reason.to_owned()) }
    }
}

fn later(until: i64, reason: Option<String>) -> Fate {
    Fate::Later { until, counted: false, reason }
}

/// The next try after `wait`, but no later than `due`: a row that is late takes another way then.
pub(crate) fn retry_at(due: i64, now: i64, wait: Duration) -> i64 {
    let next = now.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
    if due > now { next.min(due) } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::tier::{Kind, Target};

    const S: i64 = 1_000_000;
    const BOUNDS: Bounds = Bounds { max_body: 1000, frame_max: 131_072 };

    fn row(id: i64, routing_key: Option<&str>, attempts: i32) -> Row {
        let message = Message {
            id,
            message_id: uuid::Uuid::nil(),
            tier: "t".into(),
            key: None,
            kind: None,
            routing_key: routing_key.map(str::to_owned),
            body: vec![],
            content_type: "text/plain".into(),
            headers: serde_json::Map::new(),
            created_at: 0,
            available_at: 0,
            due_at: None,
            attempts,
        };
        Row { id, message_id: uuid::Uuid::nil(), key: None, message: Ok(message) }
    }

    fn tier() -> Tier {
        Tier { name: "t".into(), kind: Kind::Direct, target: Target::Queue("q".into()), mandatory: true }
    }

    #[test]
    fn a_bad_row_is_parked_and_its_neighbours_go_out() {
        let mut rows = vec![row(1, None, 0), row(2, Some("elsewhere"), 0), row(3, None, 0), row(4, None, 0)];
        rows[2].message = Err("cannot be read".into());
        let plan = plan(&tier(), &rows, 0, &BOUNDS, |_| None);
        assert_eq!(plan.outgoing.iter().map(|o| o.message.id).collect::<Vec<_>>(), [1, 4]);
        assert!(plan.decided.iter().all(|(_, fate)| matches!(fate, Fate::Parked { counted: false, .. })));
    }

    #[test]
    fn rows_of_a_closed_hop_wait_for_its_next_probe() {
        let rows = [row(1, None, 0)];
        let plan = plan(&tier(), &rows, 5 * S, &BOUNDS, |_| Some(Duration::from_secs(2)));
        assert_eq!(plan.decided, [(1, Fate::Later { until: 7 * S, counted: false, reason: None })]);
    }

    #[test]
    fn the_next_try_is_never_after_the_due_time_unless_that_has_passed() {
        assert_eq!(retry_at(100, 10, Duration::from_micros(50)), 60);
        assert_eq!(retry_at(40, 10, Duration::from_micros(50)), 40);
        assert_eq!(retry_at(10, 10, Duration::from_micros(50)), 60);
    }

    #[test]
    fn only_failures_of_the_row_count_and_the_last_parks_it() {
        let backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(60) };
        let retry = Retry { max_attempts: 3, backoff, now: 0 };
        let fate = |attempts, verdict: Verdict| {
            let rows = [row(1, None, attempts)];
            let plan = plan(&tier(), &rows, 0, &BOUNDS, |_| None);
            retry.fate(&plan.outgoing[0], &verdict, &BTreeMap::new())
        };
        assert_eq!(fate(0, Verdict::Sent), Fate::Sent);
        assert!(matches!(fate(1, Verdict::Unroutable("x".into())), Fate::Later { counted: true, .. }));
        assert!(matches!(fate(2, Verdict::Unroutable("x".into())), Fate::Parked { counted: true, .. }));
        assert!(matches!(fate(9, Verdict::Refused("x".into())), Fate::Later { counted: false, .. }));
        assert!(matches!(fate(9, Verdict::HopTrouble("x".into())), Fate::Later { counted: false, .. }));
        assert!(matches!(fate(0, Verdict::Bad("x".into())), Fate::Parked { counted: false, .. }));
    }
}
