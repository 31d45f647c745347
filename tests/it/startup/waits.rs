//! The daemon starts whether or not its ends are there; it says what it waits for, and goes on by itself.

use super::NOW;
use crate::support::consumer::Consumer;
use crate::support::daemon::Daemon;
use crate::support::proxy::{Mode, Proxy};
use crate::support::relay::START;
use crate::support::rig::{Base, Own, Rig};
use crate::support::wait::{eventually, secs};

/// The daemon waits, is alive, and says for whom; `logged` is in its log.
#[track_caller]
fn assert_waits(daemon: &Daemon, end: &str, logged: &str) {
    daemon.wait_log(logged, START);
    eventually("/readyz names the end", START, || {
        let (code, text) = daemon.get("/readyz").unwrap_or_default();
        code == 503 && text.contains(&format!("{end}: "))
    });
    assert_eq!(daemon.get("/healthz").map(|(code, _)| code), Some(200), "an outage is not ill health");
}

/// Ready, and a row arrives.
async fn assert_relays(rig: &Rig, daemon: &Daemon) {
    daemon.wait_ready(START);
    let mut now = Consumer::new(&rig.amqp_url(), "now").await;
    rig.db().await.insert_rows("now", 1).await;
    now.next(secs(10)).await.expect("it arrives");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_it_waits_for_it() {
    let rig = Rig::private("nodatabase", Own::Postgres);
    let role = rig.migrated();
    rig.postgres().stop();
    let daemon = rig.daemon(&role, NOW);
    assert_waits(&daemon, "postgres", "cannot connect to Postgres");
    // The listener has failed as well, which does not mean that the relay polls.
    daemon.wait_log("listener: cannot connect to Postgres", START);
    let (_, status) = daemon.get("/status").unwrap();
    assert!(status.contains("\"wakefulness\":\"away\""), "{status}");
    rig.postgres().start();
    assert_relays(&rig, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_it_waits_for_it() {
    let rig = Rig::new("nobroker");
    let role = rig.migrated();
    let proxy = Proxy::new(rig.rabbit().port());
    proxy.set(Mode::Reset);
    let base = Base { rabbit_port: proxy.port(), ..rig.relay_base(&role) };
    let daemon = Daemon::start(&rig, &format!("{}{NOW}", base.render()));
    assert_waits(&daemon, "rabbitmq", &format!("connect to RabbitMQ at 127.0.0.1:{}", proxy.port()));
    proxy.set(Mode::Pass);
    assert_relays(&rig, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_database_password_is_waited_out_and_never_shown() {
    let rig = Rig::new("dbpassword");
    let role = rig.create_role_with_password("relay", "right-before");
    rig.migrate(&["--grant-relay", &role]);
    let toml = rig.relay_base(&role).render().replace(&role, &format!("{role}:canary-one"));
    let daemon = Daemon::start(&rig, &format!("{toml}{NOW}[log]\nlevel = \"debug\"\n"));
    assert_waits(&daemon, "postgres", "password authentication failed");
    daemon.wait_log("the password is the one in the URL", secs(5));
    let change = format!("alter role {role} password 'canary-one'");
    rig.postgres().sql("postgres", &change);
    assert_relays(&rig, &daemon).await;
    assert!(!daemon.log().contains("canary-one"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_broker_password_is_waited_out_and_never_shown() {
    let rig = Rig::new("mqpassword");
    let role = rig.migrated();
    let user = rig.name();
    let password = crate::support::rabbit::PASSWORD;
    let change = |to: &str| {
        let change = format!(r#"rabbit_auth_backend_internal:change_password(<<"{user}">>, <<"{to}">>, <<"rig">>)"#);
        rig.rabbit().eval(&change);
    };
    change("something-else");
    let daemon = rig.daemon(&role, &format!("{NOW}[log]\nlevel = \"debug\"\n"));
    assert_waits(&daemon, "rabbitmq", "ACCESS_REFUSED");
    daemon.wait_log("check the user, its password", secs(5));
    change(password);
    assert_relays(&rig, &daemon).await;
    assert!(!daemon.log().contains(password), "{}", daemon.log());
}
