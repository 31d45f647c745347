//! The delay queue of a tier: declared where it is missing, compared where it is not.

use super::{ACCESS_REFUSED, Check, PRECONDITION_FAILED, Refusal};
use crate::broker::error::Error;
use crate::tier::{DelayQueue, Kind, Tier};

impl Check<'_> {
    /// The delay queue and the exchange in front of it. Returns its consumers.
    pub(super) async fn delay(&mut self, tier: &Tier) -> Result<Option<u32>, Error> {
        let Kind::Queue { queue, .. } = &tier.kind else { return Ok(None) };
        let consumers = self.delay_queue(tier, queue).await?;
        if !queue.hop.exchange.is_empty() {
            self.exchange(tier, &queue.hop.exchange, None).await?;
            self.bind(tier, &queue.name, &queue.hop.exchange, &queue.hop.routing_key).await?;
        }
        Ok(consumers)
    }

    /// The delay queue alone, declared if it is missing and compared if it is not.
    pub(super) async fn delay_queue(&mut self, tier: &Tier, queue: &DelayQueue) -> Result<Option<u32>, Error> {
        if self.known.contains(&queue.name)
            && self.passive(&queue.name).await?.is_err_and(|refusal| refusal.is_missing())
        {
            let name = &queue.name;
            tracing::error!(
                tier = tier.name,
                "delay queue '{name}' has vanished with all that it held: somebody deleted it, a policy with `expires` \
                 did, or rabbitmq.urls names brokers that are no cluster and this is another; it is declared again, and \
                 only a rule's sweep closes the orders whose messages it had"
            );
        }
        let passive = if self.verifies() { Some(self.passive(&queue.name).await?) } else { None };
        if matches!(&passive, Some(Err(refusal)) if refusal.is_missing()) {
            self.missing(tier, &format!("delay queue '{}'", queue.name));
            return Ok(None);
        }
        let consumers = match self.declare(&queue.name, &queue.arguments).await? {
            // There, and who may not declare cannot compare its arguments.
            Err(Refusal { code: ACCESS_REFUSED, .. }) if let Some(Ok(found)) = passive => {
                let name = &queue.name;
                let text = format!(
                    "the arguments of delay queue '{name}' were not compared, as this user may not configure it: that it \
                     delays by {} is taken on trust; with rabbitmq.management_url `check --connect` tells more",
                    humantime::format_duration(tier.delay())
                );
                if !self.known.contains(name) {
                    tracing::warn!(tier = tier.name, "{text}");
                }
                self.report.uncompared.insert(name.clone(), text);
                self.report.declared.insert(name.clone());
                Some(found.consumer_count())
            }
            Ok(found) => {
                self.report.declared.insert(queue.name.clone());
                Some(found.consumer_count())
            }
            Err(Refusal { code: PRECONDITION_FAILED, text }) => {
                let wanted: Vec<String> =
                    queue.arguments.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                let cure = if self.verifies() {
                    "say in `delay`, `target`, `queue_type` and `arguments` of the tier what the queue has"
                } else {
                    "duebox never deletes a queue: give the tier another queue name, drain and delete the old queue, or \
                     set these arguments to what the queue has"
                };
                let name = &queue.name;
                let wanted = wanted.join(", ");
                let text =
                    format!("delay queue '{name}' exists with other arguments ({text}); wanted: {wanted}; {cure}");
                self.problem(tier, true, text);
                None
            }
            Err(Refusal { code, text }) => {
                self.problem(tier, false, format!("delay queue '{}' cannot be declared: {code} {text}", queue.name));
                None
            }
        };
        Ok(consumers)
    }
}
