//! From the configuration to the parts.

use crate::admin::{fresh::Fresh, health::Health, metrics::Metrics};
use crate::backoff::Backoff;
use crate::broker::Broker;
use crate::broker::consume::{Consumer, Receipt};
use crate::broker::link::{Endpoint, Link, Settings as LinkSettings};
use crate::config::{Config, Postgres, RabbitMq};
use crate::outbox::Outbox;
use crate::outbox::connect::{Db, Settings};
use crate::outbox::doorbell::Doorbell;
use crate::relay::{self, Relay};
use crate::rule::{Closer, FAILED, Kept, Sweep, consumed};
use crate::stop::Stop;
use crate::wake::Wake;
use anyhow::Context;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader of `/metrics` waits for the count that it asked for.
const COUNT: Duration = Duration::from_secs(2);

/// How long a reader of `/readyz` or `/status` waits for the pauses: whoever probes gives up after a second.
const PAUSES: Duration = Duration::from_millis(500);

/// Everything that the loops share.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) db: Db,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) broker: Broker,
    /// The closer's connection, if there is a closer. RabbitMQ reads nothing from a connection that has published while an
    /// alarm is on, its acks neither.
    pub(super) closer_link: Option<Arc<Link>>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) fresh: Arc<Fresh>,
    pub(super) pauses: Arc<Fresh>,
    pub(super) wake: Arc<Wake>,
    pub(super) stop: Stop,
}

impl Parts {
    /// Builds the parts; nothing is connected yet.
    pub(super) fn build(config: Config) -> anyhow::Result<Self> {
        let (health, metrics, stop) = (Arc::<Health>::default(), Arc::<Metrics>::default(), Stop::default());
        metrics.start_at_zero(config.tiers.keys());
        let reasons: Vec<&str> = Kept::REASONS.into_iter().chain([FAILED]).collect();
        metrics.rules.start_at_zero(config.rules.keys(), &reasons);
        let listen = listener(&config.postgres)?;
        let db = Db::new(database(&config.postgres)?, config.postgres.pool_size)?;
        let mut link_settings = broker(&config.rabbitmq, config.relay.max_message_bytes)?;
        if config.closer.enabled {
            link_settings.consumed_here = consumed(&config.closer, &config.tiers, &config.rules);
        }
        let shared = (Arc::clone(&health), Arc::clone(&metrics));
        let wake = Arc::<Wake>::default();
        let link = |name, on_demand| {
            let (settings, wake) = (link_settings.clone(), Arc::clone(&wake));
            Arc::new(Link::new(name, settings, on_demand, wake, shared.clone(), stop.clone()))
        };
        let broker = Broker { shared: link("duebox", false), isolated: link("duebox isolated", true) };
        let closer_link = config.closer.enabled.then(|| link("duebox closer", true));
        let doorbell =
            Arc::new(Doorbell::new(listen, db.clone(), Arc::clone(&wake), (Arc::clone(&health), Arc::clone(&metrics))));
        let fresh = |patience| Arc::new(Fresh::new(patience));
        let (fresh, pauses) = (fresh(COUNT), fresh(PAUSES));
        Ok(Self { config, db, doorbell, broker, closer_link, health, metrics, fresh, pauses, wake, stop })
    }

    /// Every connection to RabbitMQ.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        let Broker { shared, isolated } = &self.broker;
        [shared, isolated].into_iter().chain(&self.closer_link).map(Arc::clone).collect()
    }

    /// The sweep of one rule.
    pub(super) fn sweep(&self, name: &str) -> Option<Sweep> {
        Some(Sweep {
            db: self.db.clone(),
            name: name.to_owned(),
            rule: self.config.rules.get(name)?.clone(),
            batch: self.config.sweep.batch,
            health: Arc::clone(&self.health),
            metrics: Arc::clone(&self.metrics),
            stop: self.stop.clone(),
        })
    }

    /// The closer, and a consumer for each of its queues.
    pub(super) fn closer(&self) -> (Closer<Receipt>, Vec<Consumer>) {
        let (config, closer) = (&self.config, &self.config.closer);
        let shown = (Arc::clone(&self.health), Arc::clone(&self.metrics));
        let made = Closer::new(self.db.clone(), closer, &config.tiers, &config.rules, shown, self.stop.clone());
        let link = self.closer_link.iter();
        let consumer = |(link, queue): (&Arc<Link>, &String)| {
            let links = (Arc::clone(link), Arc::clone(&self.broker.shared));
            Consumer::new(links, queue.clone(), closer.prefetch, closer.shared)
        };
        let consumers = link.flat_map(|link| made.queues().map(move |queue| (link, queue))).map(consumer).collect();
        (made, consumers)
    }

    /// The relay between the two sides.
    pub(super) fn relay(&self) -> Relay<Outbox, Broker> {
        let config = &self.config;
        let outbox = Outbox::new(self.db.clone(), Arc::clone(&self.doorbell), &config.relay);
        let settings = relay::Settings {
            workers: config.relay.workers,
            batch_rows: config.relay.batch_rows,
            batch_deadline: config.relay.batch_deadline,
            max_attempts: config.relay.max_attempts,
            backoff: Backoff { min: config.relay.backoff_min, max: config.relay.backoff_max },
            poll: config.outbox.poll,
        };
        let shown = (Arc::clone(&self.health), Arc::clone(&self.metrics));
        let sides = (outbox, self.broker.clone());
        Relay::new(sides, config.tiers.clone(), settings, Arc::clone(&self.wake), shown, self.stop.clone())
    }
}

/// How to reach the database.
pub(crate) fn database(postgres: &Postgres) -> anyhow::Result<Settings> {
    Ok(Settings {
        url: postgres.url.clone(),
        password: postgres.password()?,
        schema: postgres.schema.clone(),
        connect_timeout: postgres.connect_timeout,
        statement_timeout: postgres.statement_timeout,
    })
}

/// How to reach the database to listen. Parsed here so that a bad URL ends the start, and not only the listening.
pub(crate) fn listener(postgres: &Postgres) -> anyhow::Result<Settings> {
    let mut settings = database(postgres)?;
    if let Some(url) = &postgres.listen_url {
        settings.url = url.clone();
        Db::new(settings.clone(), 1).context("postgres.listen_url")?;
    }
    Ok(settings)
}

/// How to reach the broker.
pub(crate) fn broker(rabbitmq: &RabbitMq, max_message_bytes: usize) -> anyhow::Result<LinkSettings> {
    let password = rabbitmq.password()?;
    let endpoint = |url: &crate::config::AmqpUrl| Endpoint {
        host: url.host.clone(),
        port: url.port,
        vhost: url.vhost.clone(),
        user: url.user.clone(),
        password: password.clone().unwrap_or_else(|| url.password.clone()),
    };
    Ok(LinkSettings {
        endpoints: rabbitmq.urls.iter().map(endpoint).collect(),
        heartbeat: rabbitmq.heartbeat,
        connect_timeout: rabbitmq.connect_timeout,
        topology: rabbitmq.topology,
        topology_check: rabbitmq.topology_check,
        max_message_bytes,
        consumed_here: BTreeSet::new(),
    })
}
