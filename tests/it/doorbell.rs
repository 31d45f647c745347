//! A row leaves at once although producers hardly ever ring, and nobody asks when there is nothing to do.

mod at_once;
mod crowd;
mod idle;
mod mixed;
mod model;
mod parting;
mod relays;
mod reopened;
mod setting;
mod skipped;

use crate::support::consumer::Consumer;
use crate::support::daemon::Daemon;
use crate::support::db::{Db, Row};
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{eventually, secs};
use std::time::Duration;
use tokio_postgres::types::Type;

const DOORBELL: &str = include_str!("../../sql/doorbell.sql");

/// The fallback poll of these relays: whoever is not woken sleeps through the test.
const NEVER: &str = "[outbox]\npoll = \"1h\"\n";

/// Any row keeps them awake for a moment: a claim that is full is one that more may follow.
const STAY: &str = "[relay]\nbatch_rows = 1\n";

/// How long a row may take on a machine under load; without a ring it takes an hour.
const AT_ONCE: Duration = Duration::from_secs(5);

const NOW: &str = "[tier.now]\ntarget = { queue = \"due\" }\n";

/// A relay that only a ring wakes, asleep.
struct Sleeper {
    rig: Rig,
    daemon: Daemon,
    db: Db,
    due: Consumer,
}

impl Sleeper {
    async fn new(name: &str) -> Self {
        Self::on(Rig::new(name)).await
    }

    async fn on(rig: Rig) -> Self {
        let daemon = rig.relay(&format!("{STAY}{NEVER}{NOW}"));
        asleep(&daemon);
        let (db, due) = (rig.db().await, Consumer::new(&rig.amqp_url(), "due").await);
        Self { rig, daemon, db, due }
    }

    /// Inserts a row and waits until it has arrived and the relay sleeps again.
    async fn one_row(&mut self) {
        self.db.insert(&Row::new("now")).await;
        self.due.next(AT_ONCE).await.expect("the insert rings");
        asleep(&self.daemon);
    }

    /// A second relay of the same outbox, asleep.
    fn beside(&self, tiers: &str) -> Daemon {
        let second = self.rig.daemon(&format!("{}_relay", self.rig.name()), &format!("{STAY}{NEVER}{tiers}"));
        second.wait_ready(START);
        asleep(&second);
        second
    }

    /// A transaction, left open, that has run `insert` while a relay was awake: it has not rung.
    async fn skips(&self, insert: &str) -> Db {
        let awake = Awake::new(&self.rig).await;
        let producer = self.rig.db().await;
        producer.batch_execute(&format!("begin; {insert}")).await.unwrap();
        awake.ends().await;
        producer
    }

    /// Wakes the relay and waits until it is on its way back to sleep, but for these sessions.
    async fn wakes_and_waits_for(&mut self, sessions: &[&Db]) {
        self.db.insert(&Row::new("now")).await;
        self.due.next(AT_ONCE).await.expect("the insert rings");
        for session in sessions {
            let pid = pid(session).await;
            eventually("the open transaction is waited for", AT_ONCE, || waits_for(&self.daemon).contains(&pid));
        }
    }
}

/// The server process of a session.
async fn pid(session: &Db) -> i32 {
    session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Waits until the relay sleeps.
#[track_caller]
fn asleep(daemon: &Daemon) {
    eventually("the relay sleeps", secs(15), || wakefulness(daemon) == "asleep");
}

fn status(daemon: &Daemon) -> serde_json::Value {
    let (_, body) = daemon.get("/status").expect("an answer");
    serde_json::from_str(&body).unwrap()
}

fn wakefulness(daemon: &Daemon) -> String {
    status(daemon)["wakefulness"].as_str().unwrap().to_owned()
}

fn waits_for(daemon: &Daemon) -> Vec<i32> {
    serde_json::from_value(status(daemon)["waits_for_pids"].clone()).unwrap()
}

/// The lock K of the schema, held by the test as a relay that is awake holds it: a producer does not ring then. Given
/// back it leaves the producers to whoever sleeps next.
struct Awake(Db, [i32; 2]);

impl Awake {
    async fn new(rig: &Rig) -> Self {
        let db = rig.db().await;
        let row = db.query_typed(DOORBELL, &[(&"duebox", Type::TEXT)]).await.unwrap().remove(0);
        let key = [row.get("key1"), row.get("key2")];
        let taken: bool =
            db.query_one("select pg_try_advisory_lock($1, $2)", &[&key[0], &key[1]]).await.unwrap().get(0);
        assert!(taken, "the relay sleeps, so K is free");
        Self(db, key)
    }

    async fn ends(self) {
        let Self(db, key) = self;
        let had: bool = db.query_one("select pg_advisory_unlock($1, $2)", &[&key[0], &key[1]]).await.unwrap().get(0);
        assert!(had);
    }
}
