//! The demo's consumer: prints the business id of each message that reaches a queue, one a line, as it arrives.
//!
//! `watch URL QUEUE` ends with its connection. What to do about a message is decided by whoever reads the lines.

use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use std::io::Write;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(queue)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: watch URL QUEUE");
    };
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(10, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut deliveries = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    while let Some(delivery) = deliveries.next().await {
        let delivery = delivery?;
        let headers = delivery.properties.headers().as_ref();
        if let Some(AMQPValue::LongString(key)) = headers.and_then(|headers| headers.inner().get("x-duebox-key")) {
            writeln!(std::io::stdout().lock(), "{key}")?;
        }
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
