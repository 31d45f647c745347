//! Every statement in `sql/` fits the schema that `migrate` makes and the rights that it grants.

use crate::support::db::Db;
use crate::support::rig::Rig;
use std::fs;
use std::path::Path;

/// The database's complaint about a statement: prepared for its names and types, explained for its rights (a privilege
/// is asked for when a plan is opened, not when it is made).
async fn complaint(db: &Db, statement: &str) -> Option<String> {
    let parameters = match db.prepare(statement).await {
        Ok(prepared) => prepared.params().len(),
        Err(error) => return Some(format!("{error:?}")),
    };
    let nulls = vec!["null"; parameters].join(", ");
    let arguments = if parameters == 0 { String::new() } else { format!("({nulls})") };
    let explain = format!("prepare s as {statement}\n;\nexplain execute s{arguments};\ndeallocate s");
    db.batch_execute(&explain).await.err().map(|error| format!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_prepares_against_the_schema_as_the_relays_role() {
    let rig = Rig::new("sql_files");
    let relay = rig.create_role("relay");
    rig.migrate(&["--grant-relay", &relay]);
    let db = rig.db_as(&relay).await;
    db.batch_execute("set search_path = duebox, pg_temp").await.unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let complaint = complaint(&db, &fs::read_to_string(&entry).unwrap()).await;
        assert_eq!(complaint, None, "{}", entry.display());
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} statements found");
    // The check itself: a name that is not there, and a right that the relay does not have.
    assert!(complaint(&db, "select nothing from outbox").await.is_some_and(|text| text.contains("nothing")));
    let forbidden = complaint(&db, "update outbox set payload = $1").await;
    assert!(forbidden.is_some_and(|text| text.contains("permission denied")));
}
