//! `duebox migrate`: once, twice, at the same time, printed, and by whom.

use super::rig::{Database, allowed, denied, one};
use duebox::outbox::migrate::{self, Accepts, Applied, Grants, Trigger, VERSION};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio_postgres::{Client, Config, config::Host};

/// The catalog of the schema as text, without what differs by chance (OIDs) or by time.
async fn catalog(client: &Client, schema: &str) -> String {
    let sql = "
        with ours as (select oid from pg_namespace where nspname = $1::text)
        select string_agg(line, E'\n' order by line collate \"C\") from (
            select 'schema ' || nspname || ' ' || nspacl::text from pg_namespace where nspname = $1::text
            union all select 'relation ' || relname || ' ' || relkind::text || ' ' || coalesce(reloptions::text, '')
                || ' ' || coalesce(relacl::text, '') || ' ' || coalesce(obj_description(oid), '')
                from pg_class where relnamespace in (table ours)
            union all select 'column ' || c.relname || '.' || attname || ' ' || attnum || ' '
                || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || attidentity::text || ' '
                || coalesce(pg_get_expr(adbin, adrelid), '') || ' ' || coalesce(attacl::text, '')
                from pg_attribute join pg_class c on c.oid = attrelid
                left join pg_attrdef on adrelid = attrelid and adnum = attnum
                where c.relnamespace in (table ours) and attnum > 0
            union all select 'index ' || pg_get_indexdef(indexrelid) from pg_index
                join pg_class c on c.oid = indexrelid where c.relnamespace in (table ours)
            union all select 'constraint ' || conname || ' ' || pg_get_constraintdef(oid)
                from pg_constraint where connamespace in (table ours)
            union all select pg_get_functiondef(oid) || ' ' || proacl::text
                from pg_proc where pronamespace in (table ours)
            union all select pg_get_triggerdef(t.oid) from pg_trigger t
                join pg_class c on c.oid = tgrelid where c.relnamespace in (table ours)
        ) as lines (line)";
    client.query_one(sql, &[&schema]).await.unwrap().get(0)
}

#[tokio::test]
async fn migrating_twice_is_a_no_op_and_still_grants() {
    let database = Database::empty("duebox").await;
    let mut owner = database.owner().await;
    assert_eq!(migrate::version(&owner, "duebox").await.unwrap(), None);
    let first = migrate::apply(&mut owner, "duebox", &Grants::default(), Trigger::Keep).await.unwrap();
    assert_eq!(first, Applied { schema: "duebox".into(), from: None, to: VERSION, rings: true });
    let (before, row) = (catalog(&owner, "duebox").await, "select xmin::text from state where name = 'schema'");
    let written: String = one(&owner, row).await;

    let second = migrate::apply(&mut owner, "duebox", &Grants::default(), Trigger::Keep).await.unwrap();
    assert_eq!(second, Applied { schema: "duebox".into(), from: Some(VERSION), to: VERSION, rings: true });
    assert_eq!(catalog(&owner, "duebox").await, before);
    assert_eq!(one::<String>(&owner, row).await, written, "the version was written again");
    assert_eq!(migrate::version(&owner, "duebox").await.unwrap(), Some(VERSION));

    denied(&database.producer().await, "select duebox.enqueue('now', 'k', 't', '{}')").await;
    migrate::apply(&mut owner, "duebox", &database.grants(), Trigger::Keep).await.unwrap();
    allowed(&database.producer().await, "select duebox.enqueue('now', 'k', 't', '{}')").await;
}

/// Both wait behind a third session that holds the migration's lock, and go off together.
#[tokio::test]
async fn migrating_at_the_same_time_ends_well_for_both() {
    let database = Database::empty("duebox").await;
    let admin = database.superuser().await;
    allowed(&admin, "begin; select pg_advisory_xact_lock(hashtextextended('duebox migrate duebox', 0))").await;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (mut owner, grants) = (database.owner().await, database.grants());
        // As strict a default as there is: the migration must not see the catalog of before its wait.
        allowed(&owner, "set default_transaction_isolation = 'serializable'").await;
        tasks.push(tokio::spawn(async move { migrate::apply(&mut owner, "duebox", &grants, Trigger::Keep).await }));
    }
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = current_database())";
    while one::<i64>(&admin, waiting).await < 2 {
        assert!(!tasks.iter().any(tokio::task::JoinHandle::is_finished), "a migration did not wait for the lock");
        tokio::task::yield_now().await;
    }
    allowed(&admin, "commit").await;
    let mut found = Vec::new();
    for task in tasks {
        found.push(task.await.unwrap().unwrap().from);
    }
    found.sort();
    assert_eq!(found, [None, Some(VERSION)]);
}

#[tokio::test]
async fn a_schema_name_that_needs_quoting_works_throughout() {
    let database = Database::empty("Out Box").await;
    let mut owner = database.owner().await;
    migrate::apply(&mut owner, "Out Box", &database.grants(), Trigger::Keep).await.unwrap();
    migrate::apply(&mut owner, "Out Box", &database.grants(), Trigger::Keep).await.unwrap();
    let producer = database.producer().await;
    allowed(&producer, "select \"Out Box\".enqueue('now', 'k', 't', '{}')").await;
    assert!(one::<bool>(&producer, "select \"Out Box\".cancel('now', 'k')").await);
    allowed(&owner, "update outbox set cancelled_at = null, parked_at = now()").await;
    assert_eq!(one::<i64>(&database.relay().await, "select \"Out Box\".requeue('now', 'k')").await, 1);
}

#[tokio::test]
async fn the_owner_of_just_the_schema_can_migrate_it() {
    let database = Database::empty("duebox").await;
    let (admin, mut owner) = (database.superuser().await, database.owner().await);
    let role: String = one(&owner, "select current_user::text").await;
    allowed(
        &admin,
        &format!("create schema duebox authorization {role}; revoke create on database {} from {role}", database.name),
    )
    .await;
    denied(&owner, "create schema other").await;
    migrate::apply(&mut owner, "duebox", &database.grants(), Trigger::Keep).await.unwrap();
    allowed(&database.producer().await, "select duebox.enqueue('now', 'k', 't', '{}')").await;
}

#[tokio::test]
async fn a_missing_role_is_named_with_its_cure_and_nothing_is_applied() {
    let database = Database::empty("duebox").await;
    let mut owner = database.owner().await;
    let grants = Grants { producers: vec!["no such \"role\"".into()], relays: vec![] };
    let error = migrate::apply(&mut owner, "duebox", &grants, Trigger::Keep).await.unwrap_err().to_string();
    assert_eq!(
        error,
        r#"role "no such \"role\"" does not exist; create it first, for example: create role "no such ""role""" login;"#
    );
    assert_eq!(migrate::version(&owner, "duebox").await.unwrap(), None);
}

#[tokio::test]
async fn an_error_says_what_was_going_on_and_what_the_server_said() {
    let database = Database::empty("duebox").await;
    let mut owner = database.owner().await;
    allowed(&owner, "create schema duebox; create table duebox.outbox ()").await;
    let error = migrate::apply(&mut owner, "duebox", &Grants::default(), Trigger::Keep).await.unwrap_err().to_string();
    assert_eq!(error, r#"applying migration 1 to schema "duebox": relation "outbox" already exists (SQLSTATE 42P07)"#);
}

/// Making the trigger anew needs the table for itself, and whoever waits for that holds up every insert behind it.
#[tokio::test]
async fn a_producer_that_has_a_transaction_open_ends_a_migration_soon_and_holds_up_no_insert() {
    let database = Database::migrated().await;
    let (mut owner, open, other) = (database.owner().await, database.producer().await, database.producer().await);
    let insert = "select duebox.enqueue('now', 'k', 't', '{}')";
    let role: String = one(&owner, "select current_user::text").await;
    allowed(&open, &format!("begin; {insert}")).await;
    let before = catalog(&database.superuser().await, "duebox").await;
    let soon = Duration::from_secs(30);

    let grants = Grants::default();
    let applying = tokio::time::timeout(soon, migrate::apply(&mut owner, "duebox", &grants, Trigger::Off));
    let error = applying.await.expect("it ends").unwrap_err().to_string();
    let parts = ["setting the doorbell", "somebody's open transaction", "nothing was changed, try again", "55P03"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let script = migrate::script("duebox", &grants, Trigger::Off).unwrap();
    let config = database.config(&role);
    let printed = tokio::task::spawn_blocking(move || psql(&config, &script));
    let error = tokio::time::timeout(soon, printed).await.expect("it ends").unwrap().unwrap_err();
    assert!(error.contains("lock timeout"), "{error}");

    tokio::time::timeout(soon, other.batch_execute(insert)).await.expect("nobody waits in front of it").unwrap();
    assert_eq!(catalog(&database.superuser().await, "duebox").await, before);
    allowed(&open, "commit").await;
    migrate::apply(&mut owner, "duebox", &grants, Trigger::Off).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_neither_migrated_nor_accepted() {
    let database = Database::migrated().await;
    let mut owner = database.owner().await;
    allowed(&owner, "update state set info = '{\"version\": 99}' where name = 'schema'").await;
    let error = migrate::apply(&mut owner, "duebox", &Grants::default(), Trigger::Keep).await.unwrap_err().to_string();
    assert!(error.contains("version 99, newer than this duebox"), "{error}");
    let found = migrate::version(&database.relay().await, "duebox").await.unwrap();
    assert_eq!(migrate::accepts(found), Accepts::TooNew(99));
}

/// Runs the script as its header tells, and returns what psql complained of.
fn psql(config: &Config, script: &str) -> Result<(), String> {
    let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("the test server is on TCP") };
    let mut child = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", "-h", host])
        .args(["-p", &config.get_ports()[0].to_string()])
        .args(["-U", config.get_user().unwrap(), "-d", config.get_dbname().unwrap()])
        .env("PGPASSWORD", String::from_utf8_lossy(config.get_password().unwrap_or_default()).as_ref())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql, from postgresql-client");
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[tokio::test]
async fn the_printed_script_gives_the_same_catalog_and_can_be_run_again() {
    let (applied, printed) = (Database::empty("Out Box").await, Database::empty("Out Box").await);
    let mut owner = applied.owner().await;
    migrate::apply(&mut owner, "Out Box", &applied.grants(), Trigger::Keep).await.unwrap();
    let expected = catalog(&owner, "Out Box").await.replace(&applied.name, "DB");

    let script = migrate::script("Out Box", &printed.grants(), Trigger::Keep).unwrap();
    let owner = printed.owner().await;
    let role: String = one(&owner, "select current_user::text").await;
    for round in ["empty", "migrated"] {
        assert_eq!(psql(&printed.config(&role), &script), Ok(()), "on the {round} database");
        assert_eq!(catalog(&owner, "Out Box").await.replace(&printed.name, "DB"), expected, "on the {round} database");
        assert_eq!(migrate::version(&owner, "Out Box").await.unwrap(), Some(VERSION));
    }
}

#[tokio::test]
async fn the_printed_script_leaves_nothing_behind_when_a_role_is_missing() {
    let database = Database::empty("duebox").await;
    let owner = database.owner().await;
    let role: String = one(&owner, "select current_user::text").await;
    let grants = Grants { producers: vec!["nobody's".into()], relays: vec![] };
    let error = psql(&database.config(&role), &migrate::script("duebox", &grants, Trigger::Keep).unwrap()).unwrap_err();
    assert!(error.contains("role \"nobody's\" does not exist"), "{error}");
    assert_eq!(migrate::version(&owner, "duebox").await.unwrap(), None);
}
