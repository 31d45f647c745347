//! A look at the topology that changes nothing, for `duebox check --connect`.

use super::{Check, NOT_FOUND, Refusal, Report};
use crate::broker::error::Error;
use crate::broker::link::{Endpoint, Settings};
use crate::broker::socket;
use crate::config::Topology;
use crate::tier::{Kind, Target, Tier};
use std::collections::BTreeSet;

/// What `check --connect` finds on the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Wrong, and it stays wrong until somebody acts.
    pub problems: Vec<String>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// Looks at what `tiers` need on the broker at `endpoint`, and changes nothing.
///
/// # Errors
/// The broker cannot be asked.
pub async fn inspect(endpoint: &Endpoint, settings: &Settings, tiers: &[Tier]) -> Result<Inspection, Error> {
    let (connection, _cut) =
        socket::connect(endpoint, "duebox check", settings.heartbeat, settings.connect_timeout).await?;
    let mut check = Check { connection: &connection, settings, known: BTreeSet::new(), report: Report::default() };
    let mut found = Inspection::default();
    for tier in tiers {
        if let Some(queue) = tier.target.queue() {
            match check.passive(queue).await? {
                Ok(there) if there.consumer_count() == 0 => {
                    found.notes.push(format!("tier {}: nobody consumes target queue '{queue}'", tier.name));
                }
                Ok(_) => {}
                Err(refusal) => found.missing(settings, tier, "target queue", queue, &refusal),
            }
        }
        if let Target::Exchange { exchange, exchange_type, .. } = &tier.target
            && let Err(refusal) = check.exchange_there(exchange).await?
        {
            match exchange_type {
                Some(_) => found.missing(settings, tier, "exchange", exchange, &refusal),
                None if settings.topology != Topology::Declare => {
                    found.missing(settings, tier, "exchange", exchange, &refusal);
                }
                None => found.problems.push(format!(
                    "tier {}: exchange '{exchange}' is missing ({}); declare it, or give exchange_type so that `run` does",
                    tier.name, refusal.code
                )),
            }
        }
        if let Kind::Plugin { exchange, .. } = &tier.kind
            && let Err(refusal) = check.exchange_there(exchange).await?
        {
            found.missing(settings, tier, "exchange", exchange, &refusal);
        }
        if let Kind::Queue { queue, .. } = &tier.kind {
            let entrance = &queue.hop.exchange;
            if !entrance.is_empty()
                && let Err(refusal) = check.exchange_there(entrance).await?
            {
                found.problems.push(format!(
                    "tier {}: exchange '{entrance}' in front of its delay queue is missing ({}); declare it",
                    tier.name, refusal.code
                ));
            }
            match check.passive(&queue.name).await? {
                // It is there, so declaring it creates nothing and compares its arguments.
                Ok(_) => drop(check.delay_queue(tier, queue).await?),
                Err(refusal) => found.missing(settings, tier, "delay queue", &queue.name, &refusal),
            }
        }
    }
    found
        .problems
        .extend(check.report.problems.iter().map(|problem| format!("tier {}: {}", problem.tier, problem.text)));
    Ok(found)
}

impl Inspection {
    fn missing(&mut self, settings: &Settings, tier: &Tier, what: &str, queue: &str, refusal: &Refusal) {
        let Refusal { code, text } = refusal;
        if *code == NOT_FOUND && settings.topology != Topology::Declare {
            self.problems.push(format!(
                "tier {}: {what} '{queue}' is missing; declare it, or let `run` do it with rabbitmq.topology = \"declare\"",
                tier.name
            ));
        } else if *code == NOT_FOUND {
            self.notes.push(format!("tier {}: {what} '{queue}' is not there yet; `run` declares it", tier.name));
        } else {
            self.problems.push(format!("tier {}: {what} '{queue}': {code} {text}", tier.name));
        }
    }
}
