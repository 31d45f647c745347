//! What operators do by hand, with the daemon up or down: pause and resume, follow an order.

mod check;
mod pause;
mod readme;
mod sweep;
mod trace;

use crate::support::daemon::run_cli;
use crate::support::db::Db;
use crate::support::rig::{Base, Rig};
use crate::support::run::free_port;
use std::path::PathBuf;

/// A rig with the schema applied and a relay.toml for commands.
struct Desk {
    rig: Rig,
    role: String,
    config: PathBuf,
}

impl Desk {
    /// With these tables beside the opening ones.
    fn new(name: &str, tables: &str) -> Self {
        let rig = Rig::new(name);
        let role = rig.migrated();
        let base = rig.relay_base(&role);
        Self::on(rig, &base, tables)
    }

    /// On a rig that is migrated, for a test that goes through a proxy.
    fn on(rig: Rig, base: &Base, tables: &str) -> Self {
        let config = rig.folder().join("relay.toml");
        std::fs::write(&config, base.render() + tables).unwrap();
        Self { rig, role: base.role.clone(), config }
    }

    /// With tables of orders that the relay's role may close, and a broker that is dead.
    async fn shop(name: &str, toml: &str, tables: &str) -> (Self, Db) {
        let rig = Rig::new(name);
        let role = rig.migrated();
        let base = Base { rabbit_port: free_port(), ..rig.relay_base(&role) };
        let desk = Self::on(rig, &base, toml);
        let db = desk.rig.db().await;
        db.batch_execute(&format!("{tables}; grant select, update on all tables in schema public to {role}"))
            .await
            .unwrap();
        (desk, db)
    }

    /// The whole relay.toml.
    fn toml(&self) -> String {
        std::fs::read_to_string(&self.config).unwrap()
    }

    /// Runs a command: exit code, and all that it said.
    fn run(&self, args: &[&str]) -> (i32, String) {
        let (code, stdout, stderr) = run_cli(&[args, &["--config", self.config.to_str().unwrap()]].concat());
        (code, stdout + &stderr)
    }

    /// Runs a command that has to end so and say these words; returns all that it said.
    #[track_caller]
    fn says(&self, args: &[&str], code: i32, parts: &[&str]) -> String {
        let (found, text) = self.run(args);
        assert_eq!(found, code, "{args:?}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{args:?}, {parts:?}: {text}");
        text
    }
}
