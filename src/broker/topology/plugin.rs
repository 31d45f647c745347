//! The exchange of the delayed-message plugin, and the queue behind it.

use super::{Check, Refusal};
use crate::broker::error::{Error, reply};
use crate::tier::{Target, Tier};
use lapin::ExchangeKind;
use lapin::options::ExchangeDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

const TYPE: &str = "x-delayed-message";

/// What brokers before 4.0 answer that do not know a type of exchange, and close the connection.
const COMMAND_INVALID: u16 = 503;

impl Check<'_> {
    /// The plugin's exchange. False: the broker has no such plugin, and the connection may be gone.
    pub(super) async fn plugin(&mut self, tier: &Tier, exchange: &str) -> Result<bool, Error> {
        let behind = match &tier.target {
            Target::Queue(_) => Some("direct"),
            Target::Exchange { exchange_type, .. } => exchange_type.as_deref(),
        };
        let found = self.exchange_there(exchange).await?;
        if found.is_err_and(|refusal| refusal.is_missing())
            && !self.verifies()
            && let Some(behind) = behind
        {
            let refusal = match self.declare_delayed(exchange, behind).await {
                Ok(Ok(())) => None,
                Ok(Err(refusal)) => Some(refusal),
                // Before 4.0 it costs the connection.
                Err(Error::Amqp { source, what }) => match reply(&source) {
                    Some((code @ COMMAND_INVALID, text)) => Some(Refusal { code, text }),
                    _ => return Err(Error::Amqp { what, source }),
                },
                Err(error) => return Err(error),
            };
            match refusal {
                Some(Refusal { text, .. }) if text.contains("unknown exchange type") => {
                    let text = format!(
                        "the broker has no delayed-message plugin (exchange '{exchange}', type {TYPE}); install and enable \
                         rabbitmq_delayed_message_exchange, which RabbitMQ 4.3 and later do not take, or give the tier \
                         kind = \"hold\" or a delay queue (kind = \"queue\")"
                    );
                    self.problem(tier, true, text);
                    return Ok(false);
                }
                Some(Refusal { code, text }) => {
                    self.problem(tier, false, format!("exchange '{exchange}' cannot be declared: {code} {text}"));
                }
                None => {}
            }
        }
        if let Target::Queue(queue) = &tier.target
            && !self.verifies()
        {
            // The queue must be there before it can be bound; it is looked at again as every target is.
            self.target_queue(tier, queue).await?;
            self.bind(tier, queue, exchange, queue).await?;
        }
        Ok(true)
    }

    async fn declare_delayed(&self, exchange: &str, behind: &str) -> Result<Result<(), Refusal>, Error> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-delayed-type".into(), AMQPValue::LongString(behind.into()));
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        self.step(&format!("declare exchange '{exchange}'"), async |channel| {
            let kind = ExchangeKind::Custom(TYPE.to_owned());
            channel.exchange_declare(exchange.into(), kind, durable, arguments).await
        })
        .await
    }
}
