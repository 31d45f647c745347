//! What one test stands on: a database and a vhost of its own, on servers shared or private.

use super::postgres::Postgres;
use super::quiet::Turn;
use super::rabbit::Rabbit;
use super::run::{free_port, run};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Which servers a test wants for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// Its own PostgreSQL, the shared broker.
    Postgres,
    /// Its own RabbitMQ, the shared database server.
    Rabbit,
    /// Its own pair.
    Both,
}

/// A database and a vhost, both named `t_<n>_<name>`, with an owner and a user of that name.
pub(crate) struct Rig {
    name: String,
    folder: PathBuf,
    postgres: Held<Postgres>,
    rabbit: Held<Rabbit>,
    _turn: Turn,
}

impl Rig {
    /// On the shared servers.
    pub(crate) fn new(name: &str) -> Self {
        Self::on(name, Turn::shared(), false, false)
    }

    /// On the shared servers with no other test beside it, for a test that measures time.
    pub(crate) fn alone(name: &str) -> Self {
        Self::on(name, Turn::alone(), false, false)
    }

    /// On servers that the test may stop and kill.
    pub(crate) fn private(name: &str, own: Own) -> Self {
        Self::on(name, Turn::shared(), own != Own::Rabbit, own != Own::Postgres)
    }

    fn on(name: &str, turn: Turn, own_postgres: bool, own_rabbit: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t_{n}_{name}");
        assert!(name.len() < 50, "{name}: too long for the names of roles made from it");
        // Side by side: the broker takes seconds to start, and the database can use them.
        let (postgres, rabbit) = std::thread::scope(|scope| {
            let postgres = scope.spawn(|| held(own_postgres, Postgres::own, Postgres::shared));
            let rabbit = held(own_rabbit, Rabbit::own, Rabbit::shared);
            (join(postgres), rabbit)
        });
        postgres.sql("postgres", &format!("create role {name} login"));
        // template0 and its small log: two tests never wait for each other's copy.
        postgres.sql("postgres", &format!("create database {name} owner {name} template template0"));
        rabbit.add_vhost(&name);
        let folder = run().folder(&name);
        Self { name, folder, postgres, rabbit, _turn: turn }
    }

    /// The name of the database, its owner, the vhost and its user.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A folder for the test's files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The database server.
    pub(crate) fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// The broker.
    pub(crate) fn rabbit(&self) -> &Rabbit {
        &self.rabbit
    }

    /// The test's database, as its owner.
    pub(crate) fn postgres_url(&self) -> String {
        self.postgres.url(&self.name, &self.name)
    }

    /// The test's database, as another role.
    pub(crate) fn postgres_url_as(&self, role: &str) -> String {
        self.postgres.url(role, &self.name)
    }

    /// The test's vhost.
    pub(crate) fn amqp_url(&self) -> String {
        self.rabbit.url(&self.name)
    }

    /// Makes a login role without rights and returns its full name: roles belong to the whole server.
    pub(crate) fn create_role(&self, suffix: &str) -> String {
        let role = format!("{}_{suffix}", self.name);
        self.postgres.sql("postgres", &format!("create role {role} login"));
        role
    }

    /// Makes a login role that the server asks for its password.
    pub(crate) fn create_role_with_password(&self, suffix: &str, password: &str) -> String {
        let role = self.create_role(suffix);
        let grant = format!("alter role {role} password '{password}'; grant with_password to {role}");
        self.postgres.sql("postgres", &grant);
        role
    }

    /// The opening tables of a relay.toml for this rig, with a fresh admin port; the test appends its tiers.
    pub(crate) fn config(&self) -> String {
        self.base().render()
    }

    /// The same in parts, for a test that goes through a proxy or as another role.
    pub(crate) fn base(&self) -> Base {
        Base {
            role: self.name.clone(),
            name: self.name.clone(),
            postgres_port: self.postgres.port(),
            rabbit_port: self.rabbit.port(),
            admin_port: free_port(),
            postgres: String::new(),
            rabbitmq: String::new(),
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // An idle vhost keeps its queues' processes; the database costs nothing and dropping it costs a checkpoint.
        if matches!(self.rabbit, Held::Shared(_)) && !std::thread::panicking() {
            self.rabbit.delete_vhost(&self.name);
        }
    }
}

/// The opening tables of a relay.toml.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    /// Database and vhost.
    pub(crate) name: String,
    /// The role in the database.
    pub(crate) role: String,
    /// Of the server, or of a proxy in front of it.
    pub(crate) postgres_port: u16,
    /// Of the broker, or of a proxy in front of it.
    pub(crate) rabbit_port: u16,
    /// Where the daemon answers HTTP.
    pub(crate) admin_port: u16,
    /// More lines for `[postgres]`.
    pub(crate) postgres: String,
    /// More lines for `[rabbitmq]`.
    pub(crate) rabbitmq: String,
}

impl Base {
    /// The text.
    pub(crate) fn render(&self) -> String {
        let Self { name, role, postgres_port, rabbit_port, admin_port, postgres, rabbitmq } = self;
        let password = super::rabbit::PASSWORD;
        format!(
            "[postgres]\nurl = \"postgres://{role}@127.0.0.1:{postgres_port}/{name}\"\n{postgres}\n\
             [rabbitmq]\nurls = [\"amqp://{name}:{password}@127.0.0.1:{rabbit_port}/{name}\"]\n{rabbitmq}\n\
             [admin]\nlisten = \"127.0.0.1:{admin_port}\"\n\n"
        )
    }
}

/// A server that is everybody's, or the test's own.
enum Held<T: 'static> {
    Shared(&'static T),
    Own(Box<T>),
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

fn held<T>(own: bool, make: fn() -> T, shared: fn() -> &'static T) -> Held<T> {
    if own { Held::Own(Box::new(make())) } else { Held::Shared(shared()) }
}

/// Joins a thread and lets its panic go on in this one, with its own words.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
