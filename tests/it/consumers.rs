//! The consumers in `examples/consumers` close what is due and unpaid, once, and nothing else, whatever message comes.

use crate::support::consumer::Inspector;
use crate::support::db::Db;
use crate::support::process::Process;
use crate::support::relay::START;
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};
use lapin::BasicProperties;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SHOP: &str = include_str!("../../examples/consumers/shop.sql");

const README: &str = include_str!("../../examples/consumers/README.md");

/// The tier that the README of the examples shows.
fn tier() -> &'static str {
    let (_, rest) = README.split_once("```toml\n").expect("the README has a tier");
    rest.split_once("```").expect("the block ends").0
}

/// A running consumer, and where it says what it did.
struct Running {
    _process: Process,
    said: PathBuf,
}

impl Running {
    fn start(rig: &Rig, script: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/consumers").join(script);
        let said = rig.folder().join("consumer.log");
        let log = File::create(&said).unwrap();
        let mut command = Command::new(path);
        command.args([rig.postgres_url(), rig.amqp_url(), "shop.due".to_owned()]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { _process: Process::spawn(&mut command, "KILL"), said }
    }

    fn lines(&self, text: &str) -> usize {
        fs::read_to_string(&self.said).unwrap().lines().filter(|line| line.contains(text)).count()
    }

    async fn said(&self, text: &str, times: usize) {
        wait_until(secs(20), async || self.lines(text) == times).await;
    }
}

async fn number(db: &Db, query: &str) -> i64 {
    db.query_one(query, &[]).await.unwrap().get(0)
}

async fn closes_what_is_due_and_unpaid(name: &str, script: &str) {
    let rig = Rig::new(name);
    let role = rig.migrated();
    let db = rig.db().await;
    db.batch_execute(&format!("{SHOP}; insert into items values (1, 100)")).await.unwrap();
    let daemon = rig.daemon(&role, tier());
    daemon.wait_ready(START);
    let running = Running::start(&rig, script);

    for id in 1..=6_i64 {
        db.execute("select place($1, 1, '2 s')", &[&id]).await.unwrap();
    }
    db.batch_execute("select pay(2), pay(5); select place(7, 1, '1 hour')").await.unwrap();
    running.said(": closed", 4).await;
    // Order 7's message comes an hour too early; 2 and 5 are paid.
    running.said(": nothing to do", 3).await;
    let left = "select count(*) from orders where status = case when id in (2, 5) then 'paid' when id = 7 then 'unpaid' \
                else 'closed' end and (closed_at >= due_at - interval '1 s') is distinct from (status <> 'closed')";
    assert_eq!(number(&db, left).await, 7);
    assert_eq!(number(&db, "select stock::bigint from items").await, 97, "what was closed is back in stock, once");

    let broker = Inspector::connect(&rig.amqp_url()).await;
    for body in
        ["{\"order\" : 1}", "{\"order\":2}", "{\"order\" : 999}", "nonsense", "{\"order\" : \"1; drop table orders\"}"]
    {
        broker.publish("", "shop.due", body.as_bytes(), BasicProperties::default()).await;
    }
    running.said(": nothing to do", 6).await;
    running.said("not a message about an order", 2).await;
    assert_eq!(number(&db, left).await, 7);
    assert_eq!(number(&db, "select stock::bigint from items").await, 97);
    let paid: bool = db.query_one("select pay(1)", &[]).await.unwrap().get(0);
    assert!(!paid, "a payment that comes too late is told so");
    assert_eq!(broker.depth("shop.due").await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_consumer_closes_what_is_due_and_unpaid_and_nothing_else() {
    closes_what_is_due_and_unpaid("consumer_py", "consumer.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_consumer_closes_what_is_due_and_unpaid_and_nothing_else() {
    closes_what_is_due_and_unpaid("consumer_sh", "consumer.sh").await;
}
