//! `checks` of a rule: when an order is looked at before it is overdue.

use crate::config::shape::{Shape, duration, list, quote};
use crate::config::units::show_duration;
use crate::tier::MAX_DELAY;
use std::time::Duration;

/// Most checks of an order: each is a message.
const MAX_CHECKS: usize = 100;

/// Checks, counted from one beginning; the last is the moment at which the order is overdue.
pub(super) fn checks() -> Shape<Vec<Duration>> {
    let all = list(duration(Duration::from_secs(1)..=MAX_DELAY), |all| show(all));
    Shape::new(
        |all: &Vec<Duration>| show(all),
        move |raw| {
            let checks = (all.read)(raw)?;
            if checks.len() > MAX_CHECKS {
                return Err(format!("must have at most {MAX_CHECKS} entries"));
            }
            if !checks.is_sorted_by(|check, next| check < next) {
                return Err("must grow: each check comes later than the one before it".to_owned());
            }
            Ok(checks)
        },
    )
}

fn show(all: &[Duration]) -> String {
    format!("[{}]", all.iter().map(|one| quote(&show_duration(*one))).collect::<Vec<_>>().join(", "))
}

/// How long after the moment in the due column the first look comes; `after` is when the order is overdue.
pub(super) fn first_look(checks: &[Duration], after: Duration) -> Option<Duration> {
    Some(after.checked_sub(*checks.last()?)? + *checks.first()?)
}
