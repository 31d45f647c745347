//! Each tier walked to its end through the management API: what is bound, and which policies bend it.

use super::inspect::Inspection;
use super::routing::{Binding, takes};
use crate::broker::error::Error;
use crate::broker::management::Management;
use crate::tier::{Argument, Hop, Kind, Target, Tier};
use serde_json::Value;

/// Exchanges bound to exchanges are followed so far.
const DEEPEST: usize = 5;

/// Where a message goes.
#[derive(Debug, Default)]
struct Reached {
    queues: Vec<String>,
    /// Some exchange looks at more than the key, or leads too far.
    unclear: bool,
}

/// Walks a tier; what is wrong is added to `found`.
///
/// # Errors
/// The API cannot be asked.
pub(super) async fn walk(management: &Management, tier: &Tier, found: &mut Inspection) -> Result<(), Error> {
    let mut walk = Walk { management, tier, found };
    if let Kind::Queue { queue, .. } = &tier.kind {
        walk.leads("the way in", &queue.hop, Some(&queue.name)).await?;
        walk.delay_queue(&queue.name, &queue.arguments).await?;
    }
    match &tier.target {
        Target::Queue(_) => {}
        Target::Exchange { exchange, routing_key: Some(key), queue, .. } => {
            let hop = Hop { exchange: exchange.clone(), routing_key: key.clone() };
            walk.leads("the target", &hop, queue.as_deref()).await?;
        }
        Target::Exchange { exchange, routing_key: None, .. } => {
            if management.exchange(exchange).await?.is_some() && management.bindings(exchange).await?.is_empty() {
                walk.problem(&format!(
                    "nothing is bound to exchange '{exchange}': whatever key a row has, it comes back"
                ));
            }
        }
    }
    if let Some(queue) = tier.target.queue() {
        walk.target_queue(queue).await?;
    }
    Ok(())
}

struct Walk<'a> {
    management: &'a Management,
    tier: &'a Tier,
    found: &'a mut Inspection,
}

impl Walk<'_> {
    fn problem(&mut self, text: &str) {
        self.found.problems.push(format!("tier {}: {text}", self.tier.name));
    }

    fn note(&mut self, text: &str) {
        self.found.notes.push(format!("tier {}: {text}", self.tier.name));
    }

    /// Whether what is published with that key ends in a queue, and in `wanted` if that is known.
    async fn leads(&mut self, what: &str, hop: &Hop, wanted: Option<&str>) -> Result<(), Error> {
        if hop.exchange.is_empty() {
            return Ok(());
        }
        self.alternate(&hop.exchange).await?;
        // One that is missing is named without this API as well.
        let Some(reached) = self.reached(hop).await? else { return Ok(()) };
        let (exchange, key) = (&hop.exchange, &hop.routing_key);
        let there = wanted.is_none_or(|wanted| reached.queues.iter().any(|queue| queue == wanted));
        if reached.unclear || !reached.queues.is_empty() && there {
            return Ok(());
        }
        let bind = wanted.map_or_else(|| "a queue".to_owned(), |wanted| format!("queue '{wanted}'"));
        self.problem(&if reached.queues.is_empty() {
            format!(
                "{what}: nothing is bound to exchange '{exchange}' that takes key '{key}'; bind {bind} with that key"
            )
        } else {
            let to = reached.queues.join("', '");
            format!("{what}: exchange '{exchange}' with key '{key}' leads to '{to}' and not to {bind}; bind that")
        });
        Ok(())
    }

    /// The queues that a message reaches; none: there is no such exchange.
    async fn reached(&self, hop: &Hop) -> Result<Option<Reached>, Error> {
        let mut reached = Reached::default();
        if hop.exchange.is_empty() {
            reached.queues.extend(self.management.queue(&hop.routing_key).await?.map(|_| hop.routing_key.clone()));
            return Ok(Some(reached));
        }
        let Some(first) = self.management.exchange(&hop.exchange).await? else { return Ok(None) };
        let mut exchanges = vec![(hop.exchange.clone(), text(&first, "type"), 0)];
        while let Some((exchange, kind, depth)) = exchanges.pop() {
            for binding in self.management.bindings(&exchange).await?.iter().map(binding) {
                match takes(&kind, &binding, &hop.routing_key) {
                    Some(false) => {}
                    None => reached.unclear = true,
                    Some(true) if !binding.exchange => reached.queues.push(binding.destination),
                    Some(true) if depth >= DEEPEST => reached.unclear = true,
                    Some(true) => {
                        let next = self.management.exchange(&binding.destination).await?;
                        let kind = next.map(|next| text(&next, "type")).unwrap_or_default();
                        exchanges.push((binding.destination, kind, depth + 1));
                    }
                }
            }
        }
        Ok(Some(reached))
    }

    /// An exchange with an alternate hands over what it cannot route, and nothing comes back.
    async fn alternate(&mut self, exchange: &str) -> Result<(), Error> {
        let Some(found) = self.management.exchange(exchange).await? else { return Ok(()) };
        let mut alternate = found.pointer("/arguments/alternate-exchange").cloned();
        // Of an exchange the API tells the name of its policy, and not what that sets.
        if let (None, Some(policy)) = (&alternate, found.get("policy").and_then(Value::as_str)) {
            match self.management.policy(policy).await {
                Ok(set) => alternate = set.and_then(|set| set.pointer("/definition/alternate-exchange").cloned()),
                Err(error) => self.note(&format!(
                    "exchange '{exchange}' has policy '{policy}', which may give it an alternate exchange: {error}"
                )),
            }
        }
        if let Some(alternate) = alternate.as_ref().and_then(Value::as_str) {
            self.note(&format!(
                "exchange '{exchange}' has the alternate exchange '{alternate}': what is bound to nothing goes there and counts \
                 as sent"
            ));
        }
        Ok(())
    }

    /// The policies on a delay queue, who is on it, and where its messages go.
    async fn delay_queue(&mut self, name: &str, ours: &crate::tier::Arguments) -> Result<(), Error> {
        let Some(queue) = self.management.queue(name).await? else { return Ok(()) };
        let policy = |key: &str| queue.pointer("/effective_policy_definition").and_then(|set| set.get(key)).cloned();
        let by = queue.get("policy").and_then(Value::as_str).unwrap_or("an operator's").to_owned();
        if let Some(after) = policy("expires") {
            self.problem(&format!(
                "policy '{by}' deletes delay queue '{name}' with its messages when it is unused for {after} ms; exclude it"
            ));
        }
        if let (Some(ttl), Some(Argument::Int(delay))) = (policy("message-ttl"), ours.get("x-message-ttl"))
            && ttl.as_i64().is_some_and(|ttl| ttl < *delay)
        {
            self.problem(&format!("policy '{by}' ends the delay in queue '{name}' after {ttl} ms instead of {delay}"));
        }
        for key in ["max-length", "max-length-bytes"] {
            if let Some(most) = policy(key) {
                let then =
                    if ours.contains_key("x-overflow") { "it refuses more then" } else { "it drops the oldest then" };
                self.note(&format!("policy '{by}' limits delay queue '{name}' to {key} {most}: {then}"));
            }
        }
        let stuck = queue.get("messages_dlx").and_then(Value::as_i64).unwrap_or(0);
        if stuck > 0 {
            self.problem(&format!(
                "{stuck} message(s) of delay queue '{name}' are due and cannot leave it; see where its dead letters go"
            ));
        }
        let set = |argument: &str, key: &str| {
            let argument = queue.pointer(&format!("/arguments/{argument}")).cloned();
            argument.or_else(|| policy(key)).and_then(|value| value.as_str().map(str::to_owned))
        };
        let Some(exchange) = set("x-dead-letter-exchange", "dead-letter-exchange") else {
            self.problem(&format!("delay queue '{name}' has no dead-letter exchange: what is due is dropped"));
            return Ok(());
        };
        let key = set("x-dead-letter-routing-key", "dead-letter-routing-key");
        self.dead_letters(name, Hop { exchange, routing_key: key.unwrap_or_else(|| self.entrance_key(name)) }).await
    }

    /// A dead letter without a key of its own keeps the one that it was published with.
    fn entrance_key(&self, queue: &str) -> String {
        match &self.tier.kind {
            Kind::Queue { queue, .. } => queue.hop.routing_key.clone(),
            Kind::Direct | Kind::Hold { .. } | Kind::Plugin { .. } => queue.to_owned(),
        }
    }

    /// Where what is due goes.
    async fn dead_letters(&mut self, name: &str, hop: Hop) -> Result<(), Error> {
        let Some(reached) = self.reached(&hop).await? else {
            let exchange = &hop.exchange;
            self.problem(&format!(
                "delay queue '{name}' dead-letters to exchange '{exchange}', which is missing; declare it"
            ));
            return Ok(());
        };
        if reached.unclear || !reached.queues.is_empty() {
            return Ok(());
        }
        self.problem(&format!(
            "delay queue '{name}' dead-letters to {hop}, where nothing takes it; bind the target to that key"
        ));
        Ok(())
    }

    /// Policies that take messages away at the target.
    async fn target_queue(&mut self, name: &str) -> Result<(), Error> {
        let Some(queue) = self.management.queue(name).await? else { return Ok(()) };
        let by = queue.get("policy").and_then(Value::as_str).unwrap_or("an operator's").to_owned();
        for (key, does) in [
            ("expires", "deletes it with its messages when it is unused, in ms:"),
            ("message-ttl", "drops messages that nobody has taken, in ms:"),
            ("max-length", "limits it; what is over that is dropped or refused:"),
            ("max-length-bytes", "limits it; what is over that is dropped or refused, in bytes:"),
        ] {
            if let Some(value) = queue.pointer(&format!("/effective_policy_definition/{key}")) {
                self.note(&format!("target queue '{name}': {key} of policy '{by}' {does} {value}"));
            }
        }
        Ok(())
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn binding(found: &Value) -> Binding {
    Binding {
        destination: text(found, "destination"),
        exchange: text(found, "destination_type") == "exchange",
        key: text(found, "routing_key"),
    }
}
