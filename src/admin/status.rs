//! The daemon's own view of itself, as JSON: what `/status` answers and `duebox status` prints.

use super::flight::InFlight;
use super::health::{Health, Part, UNCONSUMED};
use super::pauses::Paused;
use serde::{Deserialize, Serialize};

/// A part that is unwell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The part.
    pub part: String,
    /// Why.
    pub reason: String,
    /// Whether the daemon is not ready because of it.
    pub needed: bool,
    /// Whether it is somebody else's to see to, while everything here works.
    #[serde(default)]
    pub mild: bool,
}

/// The daemon's view of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// The daemon's version.
    pub version: String,
    /// Both ends are usable.
    pub ready: bool,
    /// It finishes what is in flight, and ends.
    #[serde(default)]
    pub stopping: bool,
    /// What is unwell, what keeps the daemon from being ready first.
    pub problems: Vec<Problem>,
    /// What has reported that it works.
    pub works: Vec<String>,
    /// Loops that are overdue.
    pub stalled: Vec<String>,
    /// `away` (it cannot claim), `awake`, `leaving` (on the way to sleep), `asleep` (producers ring) or `polling` (they are not heard).
    pub wakefulness: String,
    /// Server processes whose open transactions it waits for before it sleeps; 0 is a prepared transaction.
    pub waits_for_pids: Vec<i32>,
    /// The broker that it is connected to, host and port.
    #[serde(default)]
    pub broker: Option<String>,
    /// What is in flight: asleep or not, these wait for one of the two servers.
    #[serde(default)]
    pub in_flight: InFlight,
    /// What is paused; none: it is not known.
    #[serde(default)]
    pub pauses: Option<Vec<Paused>>,
}

impl Daemon {
    /// Whether it is awake, in words.
    #[must_use]
    pub fn wakefulness(&self) -> String {
        let session = |pid: &i32| match pid {
            0 => "a prepared transaction (see pg_prepared_xacts)".to_owned(),
            pid => format!("pid {pid} of pg_stat_activity"),
        };
        let pids: Vec<String> = self.waits_for_pids.iter().map(session).collect();
        match (self.wakefulness.as_str(), pids.is_empty()) {
            ("asleep", _) => "asleep: inserts ring".to_owned(),
            ("polling", _) => "polling: inserts are not heard".to_owned(),
            ("away", _) => "away: it cannot claim now".to_owned(),
            ("leaving", false) => {
                format!("going to sleep, waits for open transactions that have inserted: {}", pids.join(", "))
            }
            ("leaving", true) => "going to sleep".to_owned(),
            (other, _) => other.to_owned(),
        }
    }
}

/// The view of a daemon with this health, while this is paused.
#[must_use]
pub fn daemon(health: &Health, pauses: Option<Vec<Paused>>) -> Daemon {
    let (parts, wakefulness) = (health.parts(), health.wakefulness());
    let problem = |(part, reason): (Part, String)| {
        let mild = matches!(part, Part::Consumers(_)) && reason == UNCONSUMED;
        Problem { part: part.to_string(), reason, needed: part.needed(), mild }
    };
    let mut unwell = health.problems();
    unwell.sort_by_key(|(part, _)| part.rank());
    let problems = unwell.into_iter().map(problem).collect();
    Daemon {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: health.ready(),
        stopping: health.stopping(),
        problems,
        works: parts.iter().filter(|(_, problem)| problem.is_none()).map(|(part, _)| part.to_string()).collect(),
        stalled: health.stalled(),
        wakefulness: wakefulness.name().to_owned(),
        waits_for_pids: wakefulness.waits_for().to_vec(),
        broker: health.broker(),
        in_flight: health.flight.now(),
        pauses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_whom_it_waits_for() {
        let mut daemon = daemon(&Health::default(), None);
        assert_eq!(daemon.wakefulness(), "away: it cannot claim now");
        (daemon.wakefulness, daemon.waits_for_pids) = ("leaving".to_owned(), vec![7, 9]);
        assert!(daemon.wakefulness().ends_with(": pid 7 of pg_stat_activity, pid 9 of pg_stat_activity"));
    }
}
