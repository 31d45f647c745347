//! Whatever is missing in the database is named at once, with the statement that cures it.

use super::{NOW, misconfigured};
use crate::support::consumer::Consumer;
use crate::support::daemon::{Daemon, run_cli};
use crate::support::relay::START;
use crate::support::rig::{Base, Rig};
use crate::support::wait::secs;

/// A schema of its own for each case, migrated or not, and the tables of a daemon that uses it.
fn base(rig: &Rig, role: &str, schema: &str) -> Base {
    let quoted = schema.replace('"', "\\\"");
    Base { postgres: format!("schema = \"{quoted}\""), ..rig.relay_base(role) }
}

fn migrate(rig: &Rig, schema: &str, grants: &[&str]) {
    let url = rig.postgres_url();
    let (code, _, stderr) = run_cli(&[&["migrate", "--url", &url, "--schema", schema], grants].concat());
    assert_eq!(code, 0, "{stderr}");
}

/// The GRANTs that a report says to run.
fn cures(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.find("grant ").map(|at| &line[at..]));
    lines.filter_map(|line| line.find(';').map(|end| line[..=end].to_owned())).collect()
}

#[test]
fn a_schema_that_is_not_there_is_named_with_the_command_that_makes_it() {
    let rig = Rig::new("noschema");
    let role = rig.create_role("relay");
    let said = misconfigured(&rig, &base(&rig, &role, "nowhere"), NOW);
    for part in ["schema 'nowhere' does not exist", "duebox migrate", &format!("--grant-relay {role}")] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_grants_are_listed_at_once_and_running_them_is_the_cure() {
    let rig = Rig::new("nogrants");
    let role = rig.create_role("relay");
    rig.migrate(&[]);
    let db = rig.db().await;
    let base = rig.relay_base(&role);
    let said = misconfigured(&rig, &base, NOW);
    let usage = format!("grant usage on schema \"duebox\" to {role};");
    assert_eq!(cures(&said), std::slice::from_ref(&usage), "{said}");
    db.execute(&usage, &[]).await.unwrap();

    let said = misconfigured(&rig, &base, NOW);
    let cures = cures(&said);
    for part in ["select on duebox.outbox", "select on duebox.state", "update on duebox.state"] {
        assert!(cures.iter().any(|cure| cure.contains(part)), "{part} in {cures:?}");
    }
    let columns = cures.iter().find(|cure| cure.contains("update (")).expect("the columns of the life cycle");
    for column in ["available_at", "attempts", "last_error", "sent_at", "parked_at", "cancelled_at"] {
        assert!(columns.contains(column), "{columns}");
    }
    for cure in &cures {
        db.execute(cure, &[]).await.unwrap_or_else(|error| panic!("{cure}: {error}"));
    }
    let daemon = Daemon::start(&rig, &format!("{}{NOW}", base.render()));
    daemon.wait_ready(START);
    let mut now = Consumer::new(&rig.amqp_url(), "now").await;
    db.insert_rows("now", 1).await;
    now.next(secs(10)).await.expect("with these grants and no more, it relays");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_column_without_its_grant_is_named_alone() {
    let rig = Rig::new("onegrant");
    let role = rig.migrated();
    let db = rig.db().await;
    let all = "available_at, attempts, last_error, sent_at, parked_at, cancelled_at";
    let narrow = all.replace("sent_at, ", "");
    let change = format!(
        "revoke update on duebox.outbox from {role}; revoke update ({all}) on duebox.outbox from {role}; \
         grant update ({narrow}) on duebox.outbox to {role}"
    );
    db.batch_execute(&change).await.unwrap();
    let said = misconfigured(&rig, &rig.relay_base(&role), NOW);
    assert_eq!(cures(&said), [format!("grant update (sent_at) on duebox.outbox to {role};")], "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_column_a_wrong_type_and_a_missing_grant_are_one_report() {
    let rig = Rig::new("columns");
    let role = rig.migrated();
    let change = format!(
        "alter table duebox.outbox drop column headers; \
         alter table duebox.outbox alter column attempts type bigint; \
         revoke delete on duebox.outbox from {role}"
    );
    rig.db().await.batch_execute(&change).await.unwrap();
    let said = misconfigured(&rig, &rig.relay_base(&role), NOW);
    for part in [
        "column outbox.headers must be jsonb, found missing",
        "column outbox.attempts must be integer, found bigint",
        &format!("grant delete on duebox.outbox to {role};"),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_hidden_rows_and_a_newer_schema_are_found_at_start() {
    let rig = Rig::new("views");
    let db = rig.db().await;
    let cases = [
        (
            "app_view",
            "alter table SCHEMA.outbox rename to outbox_table; create view SCHEMA.outbox as select * from \
             SCHEMA.outbox_table; grant all on SCHEMA.outbox to ROLE",
            "outbox is a view",
        ),
        ("app_rls", "alter table SCHEMA.outbox enable row level security", "row-level security hides rows"),
        ("app_new", "update SCHEMA.state set info = '{\"version\": 999}' where name = 'schema'", "999"),
    ];
    let role = rig.create_role("relay");
    for (schema, change, expected) in cases {
        migrate(&rig, schema, &["--grant-relay", &role]);
        db.batch_execute(&change.replace("SCHEMA", schema).replace("ROLE", &role)).await.unwrap();
        let said = misconfigured(&rig, &base(&rig, &role, schema), NOW);
        assert!(said.contains(expected), "{schema}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_whose_name_needs_quotes_works() {
    let rig = Rig::new("quotes");
    let role = rig.create_role("relay");
    let schema = "Out \"Box\"";
    migrate(&rig, schema, &["--grant-relay", &role]);
    let daemon = Daemon::start(&rig, &format!("{}{NOW}", base(&rig, &role, schema).render()));
    daemon.wait_ready(START);
    let mut now = Consumer::new(&rig.amqp_url(), "now").await;
    let db = rig.db().await;
    // A session with no path at all: everything ours finds its own names.
    db.batch_execute("set search_path = ''").await.unwrap();
    let enqueue = "select \"Out \"\"Box\"\"\".enqueue('now', 'k', 't', '{}')";
    db.execute(enqueue, &[]).await.unwrap();
    now.next(secs(10)).await.expect("it arrives");
}
