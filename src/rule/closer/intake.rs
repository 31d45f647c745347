//! The intake of one queue: from the broker into the room.

use super::{Closer, Waits, Work};
use crate::admin::health::Part;
use crate::backoff::Backoff;
use crate::rule::port::{Event, Receipt, Source};
use std::time::{Duration, Instant};

/// How long to wait before a queue is consumed again; how late a cure is noticed, too.
const AGAIN: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(10) };

/// A queue that was consumed for this long was consumed for good.
const LASTED: Duration = Duration::from_secs(10);

impl<R: Receipt> Closer<R> {
    /// Consumes the queue of `source` until the stop, and again whenever that has ended.
    pub async fn intake(&self, mut source: impl Source<Receipt = R>) {
        let queue = source.queue().to_owned();
        let (part, name) = (Part::Closer(queue.clone()), format!("closer of queue {queue}"));
        let (mut failures, mut begun) = (0_u32, None::<Instant>);
        while let Some(event) = self.patient(&name, self.stop.or(source.next())).await {
            match event {
                Event::Begun => {
                    begun = Some(Instant::now());
                    self.health.well(&part);
                    tracing::info!(queue, "the closer consumes queue '{queue}'");
                }
                Event::Delivered(delivery) => {
                    self.room.ready(Work { delivery: *delivery, waits: Waits::default() });
                }
                Event::Ended(reason) => {
                    // They come again, and would fill the room twice.
                    self.room.retain(|work| !work.delivery.receipt.stale());
                    self.metrics.closer.waiting(&queue, self.room.waiting(&queue));
                    self.health.problem(&part, &reason);
                    // Losing one that was of use is the first failure of a new row.
                    let lasted = begun.take().is_some_and(|begun| begun.elapsed() >= LASTED);
                    failures = if lasted { 1 } else { failures.saturating_add(1) };
                    let rest = tokio::time::sleep(AGAIN.wait(failures));
                    if self.patient(&name, self.stop.or(rest)).await.is_none() {
                        break;
                    }
                }
            }
        }
        self.health.retire(&name);
    }
}
