//! The oracle: what must hold of every row whatever fault there was, seen from both ends.

use super::consumer::Consumer;
use super::db::Db;
use super::rig::Rig;
use super::wait::{millis, secs, wait_until};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long the relay may take to catch up once a fault has cleared.
pub(crate) const CATCH_UP: Duration = secs(30);

/// Copies of a message that a fault made arrive with the others, so a short silence ends the search for them.
const QUIET: Duration = millis(300);

/// Compares the outbox with the target queues of its tiers.
pub(crate) struct Oracle<'a> {
    rig: &'a Rig,
    /// A tier and the queue that its messages end in.
    tiers: &'a [(&'a str, &'a str)],
    /// Every delivery so far: its row and its `message_id`.
    taken: Vec<(i64, Uuid)>,
}

impl<'a> Oracle<'a> {
    /// Knows where the messages of each tier must end.
    pub(crate) fn new(rig: &'a Rig, tiers: &'a [(&'a str, &'a str)]) -> Self {
        Self { rig, tiers, taken: Vec::new() }
    }

    /// Waits until nothing is pending any more, and returns how long that took.
    #[track_caller]
    pub(crate) fn settled(&self, db: &Db) -> impl Future<Output = Duration> {
        let started = Instant::now();
        let pending = "sent_at is null and parked_at is null and cancelled_at is null";
        let wait = wait_until(CATCH_UP, async || db.count(pending).await == 0);
        async move {
            wait.await;
            started.elapsed()
        }
    }

    /// Empties the queues. Every committed row is in its queue or parked, nothing marked sent is missing, and every
    /// copy has its row's `message_id`. Returns how many copies too many there were.
    pub(crate) async fn duplicates(&mut self, db: &Db) -> usize {
        let select = "select id, message_id, tier, sent_at is not null as sent, parked_at is not null as parked \
            from duebox.outbox";
        let rows = db.query(select, &[]).await.unwrap();
        for (tier, queue) in self.tiers {
            let sent = rows.iter().filter(|row| row.get::<_, &str>("tier") == *tier && row.get("sent"));
            self.empty(queue, sent.map(|row| row.get("message_id")).collect()).await;
        }
        let known: HashMap<i64, Uuid> = rows.iter().map(|row| (row.get("id"), row.get("message_id"))).collect();
        for (id, message_id) in &self.taken {
            assert_eq!(known.get(id), Some(message_id), "a delivery has its row's own message_id");
        }
        let seen: HashSet<i64> = self.taken.iter().map(|(id, _)| *id).collect();
        for row in &rows {
            let (id, sent, parked): (i64, bool, bool) = (row.get("id"), row.get("sent"), row.get("parked"));
            assert!(!sent || seen.contains(&id), "row {id} is marked sent and in no queue");
            assert!(parked || seen.contains(&id), "row {id} is lost: neither in its queue nor parked");
        }
        self.taken.len() - seen.len()
    }

    /// Takes what is in a queue, and waits for those of `expected` that are still on their way.
    async fn empty(&mut self, queue: &str, mut expected: HashSet<Uuid>) {
        for (_, message_id) in &self.taken {
            expected.remove(message_id);
        }
        let mut consumer = Consumer::new(&self.rig.amqp_url(), queue).await;
        loop {
            let patience = if expected.is_empty() { QUIET } else { secs(10) };
            let Some(delivery) = consumer.next(patience).await else { break };
            let row = delivery.headers.get("x-duebox-row").and_then(|row| row.parse().ok());
            let message_id = delivery.message_id.parse().unwrap();
            expected.remove(&message_id);
            self.taken.push((row.unwrap(), message_id));
        }
        consumer.close().await;
    }
}
