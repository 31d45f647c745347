//! Tiers with pending rows that this relay does not claim: a typo to name, or another relay's to ring for.

use super::desk::Turns;
use super::{Broker, Doorbell, Outbox, Relay, Unclaimed};
use crate::admin::health::Part;
use crate::admin::metrics::ByTier;
use crate::tier;
use crate::words::shown;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often such tiers are looked for while the relay is awake, or rows come.
const EVERY: Duration = Duration::from_secs(1);

/// The same where there are some that another relay claims: while this one is awake nobody rings for them, and every one
/// waits for the next time.
const BESIDE: Duration = Duration::from_millis(50);

/// For how long they are expected again.
const EXPECTED: Duration = Duration::from_secs(60);

/// How often while it is asleep and producers ring: only rows that nobody rang for come in then.
const ASLEEP: Duration = Duration::from_secs(60);

/// The same while there are some: whoever mends the matter wants to see it.
const NAMED: Duration = Duration::from_secs(5);

/// Which of them are rung for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ring {
    /// None: who sleeps has rung before.
    Never,
    /// Those that could go now.
    ForDue,
    /// All, when we fall asleep: a sleeper has to know when those that are for later fall due.
    ForAny,
}

/// When a relay that sleeps has a reason to look for them again.
pub(super) fn again(turns: &Turns) -> Option<Duration> {
    match (turns.stirred, turns.unknown.is_empty()) {
        (true, _) => Some(EVERY),
        (false, false) => Some(NAMED),
        (false, true) => None,
    }
}

/// How often it looks for them while it is awake.
fn awake(turns: &Turns) -> Duration {
    if turns.beside() { BESIDE } else { EVERY }
}

impl Turns {
    /// Whether another relay's rows waited for our ring lately.
    pub(super) fn beside(&self) -> bool {
        self.beside.is_some_and(|at| at.elapsed() < EXPECTED)
    }
}

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// Looks for them if it is time to.
    pub(super) async fn look_for_unclaimed(&self, turns: &mut Turns, now: Instant) -> Result<(), O::Error> {
        let every = if turns.sleep.asleep() { again(turns).unwrap_or(ASLEEP) } else { awake(turns) };
        if turns.unclaimed_looked.is_some_and(|at| now.duration_since(at) < every) {
            return Ok(());
        }
        let ring = if turns.sleep.asleep() { Ring::Never } else { Ring::ForDue };
        self.unclaimed(turns, now, ring).await
    }

    /// Looks for them and names those that nobody here knows. Rings for them: another relay may claim them, and nobody
    /// has rung for it while we were awake.
    pub(super) async fn unclaimed(&self, turns: &mut Turns, now: Instant, ring: Ring) -> Result<(), O::Error> {
        turns.unclaimed_looked = Some(now);
        turns.stirred = false;
        let known: Vec<String> = self.tiers.keys().cloned().collect();
        let claimed: Vec<String> = known.iter().filter(|name| self.claims(name)).cloned().collect();
        let found = self.outbox.unclaimed(&claimed).await?;
        let calls = |tier: &Unclaimed| ring == Ring::ForAny || ring == Ring::ForDue && tier.due;
        if found.iter().any(calls) {
            self.outbox.doorbell().ring().await;
        }
        if ring == Ring::ForDue && found.iter().any(|tier| tier.due && !self.tiers.contains_key(&tier.tier)) {
            turns.beside = Some(now);
        }
        let names = found.into_iter().map(|found| found.tier).filter(|tier| !self.tiers.contains_key(tier));
        self.name_unknown(turns, names.collect(), &known);
        Ok(())
    }

    fn name_unknown(&self, turns: &mut Turns, found: BTreeSet<String>, known: &[String]) {
        for name in turns.unknown.difference(&found) {
            self.forget_unknown(name);
        }
        for name in &found {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let (shown, hint) = (shown(name), tier::hint("the application", name, &known));
            let cure = "add the tier, unless another relay.toml on this schema has it, or cancel these rows and enqueue them again";
            let text = format!("pending rows name tier '{shown}', which relay.toml does not have; {cure}; {hint}");
            self.health.problem(&Part::UnknownTier(name.clone()), &text);
            self.metrics.unknown_tier.get_or_create(&ByTier { tier: name.clone() }).set(1);
        }
        turns.unknown = found;
    }

    pub(super) fn forget_unknown(&self, name: &str) {
        self.health.forget(&Part::UnknownTier(name.to_owned()));
        self.metrics.unknown_tier.remove(&ByTier { tier: name.to_owned() });
    }
}
