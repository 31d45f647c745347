//! Every fault of a server or of the way to it is shown within 30 s and over within 30 s of its end, with the defaults.
//!
//! The figures that this prints are the table of `docs/failures.md`. Each fault has a relay of its own, and most of the
//! time all of them wait.

mod amqp;
mod closing;
mod listener;
mod postgres;

use crate::support::daemon::Daemon;
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::{secs, wait_until};
use std::time::{Duration, Instant};

/// What is promised.
const LIMIT: Duration = secs(30);
/// How long is waited, so that a figure that breaks the promise is still a figure.
const PATIENCE: Duration = secs(90);

/// Whose way leads through the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    RabbitMq,
    Postgres,
    Listener,
}

impl Side {
    /// The beginning of its line in `/readyz`.
    fn line(self) -> &'static str {
        match self {
            Self::RabbitMq => "rabbitmq: ",
            Self::Postgres => "postgres: ",
            Self::Listener => "listener: ",
        }
    }
}

/// A relay with every default, and a proxy on one side of it.
struct Case {
    rig: Rig,
    side: Side,
    proxy: Proxy,
    role: String,
    daemon: Daemon,
}

/// What was measured of one fault.
struct Figure {
    fault: String,
    /// From its begin to its line in `/readyz`; none for a fault that is over before anything can be said.
    seen: Option<Duration>,
    /// From its end to the confirm of a row written then.
    flows: Duration,
    /// From its end until the closer closes an order: one whose message waited for the database, or a new one.
    closes: Option<Duration>,
}

impl Case {
    fn new(rig: Rig, side: Side) -> Self {
        let role = rig.migrated();
        closing::prepare(&rig, &role);
        let upstream = if side == Side::RabbitMq { rig.rabbit().port() } else { rig.postgres().port() };
        let proxy = Proxy::new(upstream);
        let base = rig.relay_base(&role);
        let base = match side {
            Side::RabbitMq => Base { rabbit_port: proxy.port(), ..base },
            Side::Postgres => Base { postgres_port: proxy.port(), ..base },
            Side::Listener => {
                let url = format!("postgres://{role}@127.0.0.1:{}/{}", proxy.port(), rig.name());
                Base { postgres: format!("listen_url = \"{url}\"\n"), ..base }
            }
        };
        let daemon = Daemon::start(&rig, &format!("{}{}", base.render(), closing::TABLES));
        Self { rig, side, proxy, role, daemon }
    }

    /// Waits until the relay works, and has worked.
    async fn healthy(&self) {
        self.daemon.wait_ready(START);
        let text = || self.daemon.get("/readyz").map(|(_, text)| text).unwrap_or_default();
        wait_until(PATIENCE, async || !text().contains(self.side.line())).await;
        self.daemon.wait_log("the closer consumes queue 'orders'", START);
        // So many that every worker has a connection of the pool.
        self.sent(3_000).await;
    }

    /// Writes rows and waits until they are sent.
    async fn sent(&self, rows: i32) -> Duration {
        let db = self.rig.db().await;
        let begun = Instant::now();
        db.insert_rows("now", rows).await;
        wait_until(PATIENCE, async || db.count("sent_at is null").await == 0).await;
        begun.elapsed()
    }

    /// Waits until the fault has its line in `/readyz`; no row is written meanwhile.
    async fn seen(&self) -> Duration {
        let begun = Instant::now();
        let code = if self.side == Side::Listener { 200 } else { 503 };
        wait_until(PATIENCE, async || {
            let answer = self.daemon.get("/readyz");
            answer.is_some_and(|(found, text)| found == code && text.lines().any(|l| l.starts_with(self.side.line())))
        })
        .await;
        assert_eq!(self.daemon.get("/healthz").unwrap().0, 200, "an outage is not ill health");
        begun.elapsed()
    }

    /// Measures a fault that lasts until it is ended.
    async fn measure(&self, fault: &str, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) -> Figure {
        self.healthy().await;
        let order = self.place_order().await;
        begin().await;
        let seen = self.seen().await;
        if self.side == Side::Postgres {
            self.deliver(order).await;
        }
        end().await;
        let (flows, closes) = tokio::join!(self.sent(1), self.closed(order));
        self.daemon.wait_ready(LIMIT);
        Figure { fault: fault.to_owned(), seen: Some(seen), flows, closes: Some(closes) }
    }

    /// Measures what the proxy does to the connections.
    async fn proxied(&self, fault: &str, mode: Mode) -> Figure {
        let begin = async || {
            if mode == Mode::FreezeAccept {
                // Those there are would go on.
                self.proxy.set(Mode::Reset);
                wait_until(secs(10), async || self.proxy.connections() == 0).await;
            }
            self.proxy.set(mode);
        };
        self.measure(fault, begin, async || self.proxy.set(Mode::Pass)).await
    }
}

/// One measurement after the other, of one case.
type Measure<'a> = Box<dyn FnOnce() -> Vec<Figure> + Send + 'a>;

/// Measures each on a thread of its own, for stopping and starting a server blocks.
fn side_by_side(cases: Vec<Measure<'_>>) -> Vec<Figure> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases.into_iter().map(|case| scope.spawn(case)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs a measurement on the thread that it was given.
fn here(measure: impl Future<Output = Vec<Figure>>) -> Vec<Figure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(measure)
}

/// The ways of a network to fail, each on a case of its own.
const NETWORK: [(&str, Mode); 5] = [
    ("black hole, both ways", Mode::BlackHole),
    ("what is connected is forgotten", Mode::Forget),
    ("the server's answers vanish", Mode::DropServerToClient),
    ("reset, and every new connection too", Mode::Reset),
    ("accepts and says nothing", Mode::FreezeAccept),
];

/// A measurement of one of [`NETWORK`].
fn network<'a>(case: &'a Case, fault: &'static str, mode: Mode) -> Measure<'a> {
    Box::new(move || here(async { vec![case.proxied(fault, mode).await] }))
}

/// Prints the figures and holds them against the promise.
#[track_caller]
fn judge(side: Side, figures: &[Figure]) {
    let show = |time: &Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
    for Figure { fault, seen, flows, closes } in figures {
        let (seen, flows, closes) = (show(seen), show(&Some(*flows)), show(closes));
        eprintln!("fault | {}{fault} | {seen} | {flows} | {closes}", side.line());
    }
    let late = |figure: &&Figure| [figure.seen, Some(figure.flows), figure.closes].iter().flatten().any(|t| *t > LIMIT);
    let late = figures.iter().filter(late);
    let late: Vec<&str> = late.map(|figure| figure.fault.as_str()).collect();
    assert!(late.is_empty(), "not within {LIMIT:?}: {late:?}");
}
