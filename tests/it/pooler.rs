//! Behind a transaction pooler a session is shared: the relay works there, and leaves nothing on it for others.

mod beside;
mod commands;
mod deaf;
mod poll;

use crate::support::db::Db;
use crate::support::pooler::Pooler;
use crate::support::rig::{Base, Own, Rig};
use tokio_postgres::SimpleQueryMessage;

/// Fewer sessions than the relay has workers.
const SIZE: u16 = 2;

/// A migrated database of a server of its own, a pooler before it, and a role for the relay.
struct Pooled {
    rig: Rig,
    role: String,
    pooler: Pooler,
}

impl Pooled {
    fn new(name: &str) -> Self {
        let rig = Rig::private(name, Own::Postgres);
        let role = rig.migrated();
        let pooler = Pooler::new(&rig, &[&role, rig.name()], SIZE);
        Self { rig, role, pooler }
    }

    /// The opening tables of a relay whose `url` is the pooler's.
    fn base(&self) -> Base {
        Base { postgres_port: self.pooler.port(), ..self.rig.relay_base(&self.role) }
    }

    /// Another client of the same pooler, which gives it the same sessions.
    async fn neighbour(&self) -> Db {
        Db::connect(&self.pooler.url(&self.role, self.rig.name())).await.unwrap()
    }

    /// Nothing that a pooler breaks was tried: no name of a statement was unknown (26000) or taken (42P05).
    #[track_caller]
    fn assert_nothing_prepared(&self, logs: &str) {
        for text in [logs, &self.rig.postgres().log(), &self.pooler.log()] {
            let wrong = ["prepared statement", "26000", "42P05"].iter().find(|word| text.contains(**word));
            assert_eq!(wrong, None, "{text}");
        }
    }
}

/// What a client finds on a session: its settings, prepared statements and session locks.
async fn found(client: &Db) -> Vec<String> {
    const LOOK: &str = "show search_path; show statement_timeout; show lock_timeout; \
        show idle_in_transaction_session_timeout; show tcp_user_timeout; show default_transaction_isolation; \
        select count(*) from pg_prepared_statements; \
        select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let mut found = Vec::new();
    for answer in client.simple_query(LOOK).await.unwrap() {
        if let SimpleQueryMessage::Row(row) = answer {
            found.extend(row.get(0).map(str::to_owned));
        }
    }
    found
}
