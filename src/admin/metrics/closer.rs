//! The metrics of the closer, by queue.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueue {
    queue: String,
}

fn of(queue: &str) -> ByQueue {
    ByQueue { queue: queue.to_owned() }
}

/// What the closer does with messages.
#[derive(Debug)]
pub struct Closer {
    parked: Family<ByQueue, Counter>,
    put_off: Family<ByQueue, Counter>,
    waiting: Family<ByQueue, Gauge>,
}

impl Closer {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let closer = Self { parked: Family::default(), put_off: Family::default(), waiting: Family::default() };
        registry.register("closer_parked", "Messages that the closer could not apply", closer.parked.clone());
        let put_off = "Messages that the closer gave back to the outbox until their orders can be closed";
        registry.register("closer_put_off", put_off, closer.put_off.clone());
        registry.register("closer_waiting", "Messages that wait in the closer, unacked", closer.waiting.clone());
        closer
    }

    /// Makes everything of a queue exist at 0.
    pub fn start_at_zero(&self, queue: &str) {
        drop(self.parked.get_or_create(&of(queue)));
        drop(self.put_off.get_or_create(&of(queue)));
        drop(self.waiting.get_or_create(&of(queue)));
    }

    /// Counts a message that was parked.
    pub fn parked(&self, queue: &str) {
        self.parked.get_or_create(&of(queue)).inc();
    }

    /// Counts a message that was given back to the outbox.
    pub fn put_off(&self, queue: &str) {
        self.put_off.get_or_create(&of(queue)).inc();
    }

    /// Notes how many wait.
    pub fn waiting(&self, queue: &str, count: usize) {
        self.waiting.get_or_create(&of(queue)).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
