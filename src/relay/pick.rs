//! Which tier a worker may claim, and the claim itself.

use super::desk::{Claimed, LOOK_EVERY, Turns};
use super::hops::PROBE;
use super::{Batch, Broker, Lane, Outbox, Relay};
use crate::tier::Tier;
use std::time::Instant;

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// The tier whose rows have probably just come, so that they need not be looked for first: while the relay is awake,
    /// or somebody rang, the one that had some last. Not where that was vain the last time: rows of other tiers come, or
    /// another relay is quicker. Not without a look now and then, nor after a failure: one tier must
    /// not keep the others waiting, by a stream of rows or by a claim that always fails.
    pub(super) fn guess(&self, lane: Lane, turns: &Turns) -> Option<String> {
        let awake = self.awaits_no_ring(lane, turns) && turns.looked_within(LOOK_EVERY);
        let rung = lane == Lane::Shared && turns.rung && !turns.misguessed;
        let likely = turns.failures == 0 && (awake || rung);
        (likely && turns.due.is_empty() && !turns.last_served.is_empty()).then(|| turns.last_served.clone())
    }

    /// Claims for one tier, if it may be claimed now and has rows.
    pub(super) async fn claim(
        &self,
        lane: Lane,
        turns: &mut Turns,
        name: String,
    ) -> Result<Option<Claimed<'_, O::Batch>>, O::Error> {
        let Some((tier, rows)) = self.allowed(lane, &name) else { return Ok(None) };
        // Set first: a tier whose claim fails must not be the first one again.
        turns.last_served.clone_from(&name);
        let asked = Instant::now();
        let claimed = self.outbox.claim(&name, rows).await?;
        self.database_works(turns);
        let Some(batch) = claimed else { return Ok(None) };
        if self.pace.rows(&name, lane).is_none() {
            // Isolated while we claimed: whoever published these rows last has given them back to be taken one by one,
            // and together they would only be published in vain once more.
            batch.roll_back().await?;
            return Ok(None);
        }
        (turns.idle, turns.locked, turns.misguessed) = (0, 0, false);
        if batch.full() {
            turns.due.push_back(name);
        }
        self.pace.begin(&tier.name);
        self.metrics.took("claim", asked.elapsed());
        Ok(Some(Claimed { tier, batch, asked }))
    }

    /// Whether this relay claims the tier's rows, by whichever worker.
    pub(super) fn claims(&self, name: &str) -> bool {
        let open = |tier| self.hops.closed(tier, Instant::now()).is_zero();
        !self.broker.closed(name) && self.tiers.get(name).is_some_and(open)
    }

    /// The tier and the rows a worker of `lane` may claim of it now.
    pub(super) fn allowed(&self, lane: Lane, name: &str) -> Option<(&Tier, usize)> {
        let tier = self.tiers.get(name).filter(|_| self.claims(name))?;
        let rows = self.pace.rows(name, lane)?;
        Some((tier, if self.hops.probing(tier) { rows.min(PROBE) } else { rows }))
    }
}
