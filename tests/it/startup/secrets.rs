//! The log carries neither payloads nor passwords, whatever level it is asked for.

use crate::support::consumer::Inspector;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::rig::Rig;
use crate::support::wait::{secs, wait_until};

const CANARY: &str = "c4n4ry-payload";

#[tokio::test(flavor = "multi_thread")]
async fn neither_the_payload_of_a_returned_message_nor_a_password_is_logged_at_any_level() {
    let rig = Rig::new("canary");
    let role = rig.create_role_with_password("relay", "c4n4ry-postgres");
    rig.migrate(&["--grant-relay", &role]);
    let broker = Inspector::connect(&rig.amqp_url()).await;
    broker.declare_exchange("shop", lapin::ExchangeKind::Direct).await;
    let base = rig.relay_base(&role).render().replace(&role, &format!("{role}:c4n4ry-postgres"));
    let tables = "[relay]\nmax_attempts = 2\nbackoff_min = \"50ms\"\n[tier.events]\ntarget = { exchange = \"shop\" }\n";
    let db = rig.db().await;
    for level in ["info", "debug", "trace"] {
        let daemon = Daemon::start(&rig, &format!("{base}{tables}[log]\nlevel = \"{level}\"\n"));
        let insert = format!(
            "insert into duebox.outbox (tier, key, routing_key, payload) \
             values ('events', '{level}', 'nowhere', jsonb_build_object('secret', repeat('{CANARY}', 70000)))"
        );
        db.execute(&insert, &[]).await.unwrap();
        // Bad rows are logged with their reason, which must not quote what is in them.
        let bad = insert.replace("'nowhere'", "repeat('k', 300)");
        db.execute(&bad, &[]).await.unwrap();
        wait_until(secs(30), async || db.count(&format!("parked_at is not null and key = '{level}'")).await == 2).await;
        daemon.wait_log("NO_ROUTE", secs(5));
        let log = daemon.log();
        let bytes: Vec<String> = CANARY.bytes().take(6).map(|byte| byte.to_string()).collect();
        let passwords = ["c4n4ry-postgres", crate::support::rabbit::PASSWORD];
        for secret in [CANARY, &bytes.join(", "), &bytes.join(","), passwords[0], passwords[1]] {
            let line =
                log.lines().find(|line| line.contains(secret)).map(|line| line.chars().take(300).collect::<String>());
            assert_eq!(line, None, "{secret} at {level}");
        }
        let config = daemon.config().display().to_string();
        for args in [&["config", "show"][..], &["check", "--connect"], &["status"], &["status", "--json"]] {
            let (_, stdout, stderr) = run_cli(&[args, &["--config", &config]].concat());
            assert!(
                !passwords.iter().any(|password| stdout.contains(password) || stderr.contains(password)),
                "{args:?}"
            );
        }
    }
}
