//! A worker: takes a batch from the desk to its end, again and again.

use super::counts::Counts;
use super::desk::Claimed;
use super::fate::{self, Retry};
use super::hops::{Gate, PROBE};
use super::pace::Alone;
use super::tell::{log_alone, log_decided, log_verdict};
use super::{Batch, Broker, Fate, Lane, Outbox, Outgoing, Publisher, Relay};
use crate::admin::flight::Waits;
use crate::admin::health::Part;
use crate::admin::metrics::Metrics;
use crate::message::Message;
use crate::tier::{Hop, Tier};
use crate::verdict::{Attempt, Cause, Judgement, Outcome, Verdict, judge};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// Works until the stop: what is in flight is confirmed and settled, nothing new is claimed.
    pub async fn work(&self, name: &str, lane: Lane) {
        let mut kept: Option<B::Publisher> = None;
        while !self.stop.raised() {
            if lane == Lane::Isolated && !self.any_isolated() {
                // Let go, so that a connection that nobody needs any more can close.
                kept = None;
                if !self.wait_for_isolation(name).await {
                    break;
                }
            }
            // No claim is open while the broker is away or blocked: a channel comes first.
            let mut publisher = match kept.take().filter(Publisher::usable) {
                Some(publisher) => publisher,
                None => {
                    // Without a channel nothing is claimed; whoever has one may be somebody else.
                    self.stand_back_if_alone(lane).await;
                    match self.patient(name, self.broker.publisher(lane)).await {
                        Some(publisher) => publisher,
                        None => break,
                    }
                }
            };
            if let Some(claimed) = self.next(lane, &publisher, name).await {
                let tier = claimed.tier;
                self.batch(claimed, &mut publisher, lane).await;
                if self.pace.end(&tier.name) {
                    self.desk(lane).wake.ring();
                }
            }
            kept = Some(publisher);
        }
        self.health.retire(name);
    }

    /// Waits until a tier is isolated; false at the stop.
    async fn wait_for_isolation(&self, name: &str) -> bool {
        loop {
            let ring = self.isolated.wake.next();
            if self.any_isolated() {
                return true;
            }
            if self.patient(name, ring).await.is_none() {
                return false;
            }
        }
    }

    /// One batch: plan, publish, judge, settle or roll back.
    async fn batch(
        &self,
        Claimed { tier, batch, asked }: Claimed<'_, O::Batch>,
        publisher: &mut B::Publisher,
        lane: Lane,
    ) {
        let flying = self.health.flight.begin(Waits::Confirms, asked);
        let plan = fate::plan(tier, batch.rows(), batch.now(), &publisher.bounds(), self.gates());
        let mut fates = plan.decided;
        let outcomes = self.publish(publisher, &plan.outgoing, tier).await;
        flying.waits(Waits::Database);
        let attempts: Vec<Attempt<'_>> = plan
            .outgoing
            .iter()
            .zip(outcomes)
            .map(|(out, outcome)| Attempt { hop: &out.hop, row_key: out.row_key, outcome })
            .collect();
        let elapsed = i64::try_from(asked.elapsed().as_micros()).unwrap_or(i64::MAX);
        let now = batch.now().saturating_add(elapsed);
        let retry = Retry { max_attempts: self.settings.max_attempts, backoff: self.settings.backoff, now };
        match judge(&attempts) {
            Judgement::Decided { verdicts, troubles, refusing, healthy } => {
                // An unknown outcome rolls the batch back, and with it what was decided before.
                log_decided(tier, batch.rows(), &fates);
                let waits = self.note_hops(tier, &plan.outgoing, &troubles, &refusing, &healthy);
                for (out, verdict) in plan.outgoing.iter().zip(&verdicts) {
                    let fate = retry.fate(out, verdict, &waits);
                    log_verdict(out, verdict, &fate);
                    fates.push((out.message.id, fate));
                }
                self.metrics.lags(
                    &tier.name,
                    sent(&plan.outgoing, &verdicts).map(|sent| now.saturating_sub(sent.available_at)),
                );
                let counts = Counts::of(&attempts, &fates);
                self.settle((tier, lane), batch, &fates, counts).await;
            }
            Judgement::Unknown { reason, cause, troubles } => {
                Metrics::add(&self.metrics.unknown, &tier.name, attempts.len());
                self.note_hops(tier, &plan.outgoing, &troubles, &BTreeMap::new(), &[]);
                if cause == Cause::Hop {
                    // An exchange that is missing is missing for rows with keys of their own as well.
                    self.broker.check_topology();
                }
                self.note_unknown(tier, &plan.outgoing, &cause, &reason);
                let alone = (lane == Lane::Isolated && cause == Cause::NoAnswer && batch.rows().len() == 1)
                    .then(|| plan.outgoing.first().map(|out| self.alone(tier, out, &retry, &reason)))
                    .flatten();
                match alone {
                    Some(fate) => self.settle_alone(tier, batch, fate).await,
                    None => self.rolled_back(batch.roll_back().await),
                }
            }
        }
    }

    async fn publish(&self, publisher: &mut B::Publisher, outgoing: &[Outgoing<'_>], tier: &Tier) -> Vec<Outcome> {
        if outgoing.is_empty() {
            return Vec::new();
        }
        Metrics::add(&self.metrics.published, &tier.name, outgoing.len());
        let started = Instant::now();
        let outcomes = publisher.publish(outgoing, self.settings.batch_deadline).await;
        self.metrics.took("confirm", started.elapsed());
        outcomes
    }

    /// How long each hop is closed for one more message of this batch.
    fn gates(&self) -> impl FnMut(&Hop) -> Option<Duration> + '_ {
        let mut gates: HashMap<Hop, (Gate, usize)> = HashMap::new();
        move |hop| {
            let (gate, used) = gates.entry(hop.clone()).or_insert_with(|| (self.hops.gate(hop, Instant::now()), 0));
            *used += 1;
            match gate {
                Gate::Open => None,
                Gate::Probe if *used <= PROBE => None,
                Gate::Probe => Some(self.settings.backoff.min),
                Gate::Closed(wait) => Some(*wait),
            }
        }
    }

    /// Remembers what hops did, and returns how long what each of them refused has to wait.
    fn note_hops(
        &self,
        tier: &Tier,
        outgoing: &[Outgoing<'_>],
        troubles: &BTreeMap<Hop, String>,
        refusing: &BTreeMap<Hop, bool>,
        healthy: &[Hop],
    ) -> BTreeMap<Hop, Duration> {
        let mut waits = BTreeMap::new();
        for (hop, reason) in troubles {
            let (wait, new) = self.hops.trouble(hop, Instant::now());
            waits.insert(hop.clone(), wait);
            let by_row = outgoing.iter().any(|out| out.row_key && out.hop == *hop);
            if !by_row {
                self.health.problem(&Part::Hop(hop.to_string()), reason);
                self.broker.check_topology();
            } else if new {
                tracing::warn!(tier = tier.name, hop = %hop, "{hop} is in trouble: {reason}");
            }
        }
        for (hop, took_some) in refusing {
            let (wait, in_trouble) = self.hops.refused(hop, *took_some, Instant::now());
            waits.insert(hop.clone(), wait);
            let part = Part::Hop(hop.to_string());
            if in_trouble {
                self.health.problem(&part, &format!("{hop} refuses every message"));
            } else {
                self.health.forget(&part);
            }
        }
        for hop in healthy {
            if self.hops.healthy(hop) {
                self.health.forget(&Part::Hop(hop.to_string()));
                // What the check has found wrong about it is over, too.
                self.broker.check_topology();
            }
        }
        waits
    }

    /// Writes a decided batch; counts only what was committed.
    async fn settle(&self, (tier, lane): (&Tier, Lane), batch: O::Batch, fates: &[(i64, Fate)], counts: Counts) {
        let started = Instant::now();
        let settled = batch.settle(fates).await;
        self.metrics.took("settle", started.elapsed());
        if settled.is_ok() {
            let Counts { answered, sent, returned, nacked, parked } = counts;
            let metrics = &self.metrics;
            for (family, count) in [
                (&metrics.confirmed, sent),
                (&metrics.returned, returned),
                (&metrics.nacked, nacked),
                (&metrics.parked, parked),
            ] {
                Metrics::add(family, &tier.name, count);
            }
            let ids: Vec<i64> = fates.iter().map(|(id, _)| *id).collect();
            if self.pace.known(&tier.name, lane, &ids, answered) {
                self.isolation_ended(&tier.name);
            }
        }
        self.settled(tier, settled);
    }

    /// Writes the fate of a row that got no answer although it was alone.
    async fn settle_alone(&self, tier: &Tier, batch: O::Batch, fate: (i64, Fate)) {
        let row = batch.rows().first().cloned();
        let settled = batch.settle(std::slice::from_ref(&fate)).await;
        if settled.is_ok() {
            Metrics::add(&self.metrics.parked, &tier.name, usize::from(matches!(fate.1, Fate::Parked { .. })));
            if let Some(row) = row {
                log_alone(tier, &row, &fate.1);
            }
        }
        self.settled(tier, settled);
    }

    pub(super) fn isolation_ended(&self, tier: &str) {
        self.health.forget(&Part::Isolation(tier.to_owned()));
        self.shared.wake.ring();
    }

    /// A failed settle is the database's trouble: the rows show what became of them at the next claim, after a rest.
    fn settled(&self, tier: &Tier, settled: Result<(), O::Error>) {
        self.pace.settled(&tier.name, settled.is_ok());
        let part = Part::Settle(tier.name.clone());
        match settled {
            Ok(()) => self.health.forget(&part),
            Err(error) => {
                let text = format!("{error}; what was published is not marked sent and will be published again");
                self.health.problem(&part, &text);
            }
        }
    }

    fn rolled_back(&self, rolled_back: Result<(), O::Error>) {
        if let Err(error) = rolled_back {
            self.health.problem(&Part::Postgres, &format!("{error}; the rows of a batch come back by themselves"));
        }
    }

    /// The fate of a row that got no answer although it was alone on its connection.
    fn alone(&self, tier: &Tier, out: &Outgoing<'_>, retry: &Retry, reason: &str) -> (i64, Fate) {
        let id = out.message.id;
        let fate = match self.pace.alone(&tier.name, id) {
            Alone::Failed => retry.failed(out, &format!("no answer whenever it is published alone: {reason}")),
            Alone::Again => {
                let until = fate::retry_at(i64::MIN, retry.now, self.settings.backoff.min);
                Fate::Later { until, counted: false, reason: Some(reason.to_owned()) }
            }
        };
        (id, fate)
    }

    fn note_unknown(&self, tier: &Tier, outgoing: &[Outgoing<'_>], cause: &Cause, reason: &str) {
        let messages = outgoing.len();
        tracing::warn!(
            tier = tier.name,
            messages,
            "outcome of {messages} messages unknown, they will be published again with the same message_id: {reason}"
        );
        let isolated = match cause {
            Cause::Hop => false,
            Cause::OneOfSeveral => {
                self.pace.singly(&tier.name, messages);
                true
            }
            Cause::NoAnswer => {
                let ids: Vec<i64> = outgoing.iter().map(|out| out.message.id).collect();
                self.pace.unknown(&tier.name, &ids)
            }
        };
        if isolated {
            let why = "a message got no answer or was refused unnamed: its rows go in small batches on a connection of \
                       their own until it is found";
            self.health.problem(&Part::Isolation(tier.name.clone()), why);
            self.isolated.wake.ring();
        }
    }
}

fn sent<'a>(outgoing: &[Outgoing<'a>], verdicts: &[Verdict]) -> impl Iterator<Item = &'a Message> {
    let pairs = outgoing.iter().zip(verdicts);
    pairs.filter(|(_, verdict)| **verdict == Verdict::Sent).map(|(out, _)| out.message)
}
