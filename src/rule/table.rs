//! The table of a rule: is it there, are its columns what the rule says, and may this role close in it?

use super::probe::Probe;
use super::terms::Names;
use crate::config::{Action, Rule};
use crate::outbox::error::Error;
use crate::tier;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

const TABLE: &str = include_str!("../../sql/rule_table.sql");

const IDS: [&str; 6] = ["int8", "int4", "int2", "uuid", "text", "varchar"];
const STATUSES: [&str; 7] = ["text", "varchar", "bpchar", "int8", "int4", "int2", "enum"];
/// Columns by which an ORM tells whether a row is still the one that it read.
const VERSIONS: [&str; 2] = ["version", "lock_version"];

/// One column, as the catalog has it.
struct Column {
    name: String,
    shown_type: Option<String>,
    type_name: String,
    kind: String,
    may_select: bool,
    may_update: bool,
    is_key: bool,
}

impl Column {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            name: row.try_get("column_name")?,
            shown_type: row.try_get("shown_type")?,
            type_name: row.try_get("type_name")?,
            kind: row.try_get("kind")?,
            may_select: row.try_get("may_select")?,
            may_update: row.try_get("may_update")?,
            is_key: row.try_get("is_key")?,
        })
    }

    /// Whether it is of one of these types; if not, that is a problem. Whether it is there at all is not asked here.
    fn is(&self, table: &str, what: &str, good: &[&str], wanted: &str, problems: &mut Vec<String>) {
        let name = &self.name;
        match &self.shown_type {
            None => {}
            Some(_) if good.contains(&self.kind.as_str()) => {}
            Some(found) => problems.push(format!("column {name} of {table} is {found}; `{what}` must be {wanted}")),
        }
    }

    /// Whether it says which moment it means, by itself or by the rule's time zone.
    fn is_moment(&self, table: &str, zone: Option<&str>, problems: &mut Vec<String>) {
        let name = &self.name;
        match (self.kind.as_str(), zone) {
            ("timestamp", None) => problems.push(format!(
                "column {name} of {table} is a timestamp without time zone: which moments it means depends on a time \
                 zone; say in which one your application writes it, such as time_zone = \"UTC\" or \"Europe/Berlin\""
            )),
            ("timestamptz", Some(zone)) => problems.push(format!(
                "time_zone = '{zone}' must not be set: column {name} of {table} has time zones of its own"
            )),
            _ => self.is(table, "due", &["timestamptz", "timestamp"], "timestamptz or timestamp", problems),
        }
    }
}

/// The table and its columns; none when there is no telling what the rule means.
pub(super) async fn look_up(
    probe: Probe<'_>,
    rule: &Rule,
    problems: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Option<Names>, Error> {
    let set = set_columns(rule);
    let columns: Vec<&str> =
        [&*rule.id, &*rule.status, &*rule.due].into_iter().chain(set.iter().copied()).chain(VERSIONS).collect();
    let parameters = [(&rule.table as _, Type::TEXT), (&columns as _, Type::TEXT_ARRAY)];
    match probe.ask("", TABLE, &parameters).await? {
        Err(reason) => {
            problems.push(format!("table = '{}' is not the name of a table: {reason}", rule.table));
            Ok(None)
        }
        Ok(rows) => judge(&rows, rule, set.len(), problems, notes).map_err(Error::statement("look up a rule's table")),
    }
}

fn set_columns(rule: &Rule) -> Vec<&str> {
    match &rule.action {
        Action::Update { set, .. } => set.keys().map(String::as_str).collect(),
        Action::Function(_) => Vec::new(),
    }
}

fn judge(
    rows: &[Row],
    rule: &Rule,
    set: usize,
    problems: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Option<Names>, tokio_postgres::Error> {
    let columns = rows.iter().map(Column::read).collect::<Result<Vec<_>, _>>()?;
    let ([id, status, due, others @ ..], Some(row)) = (columns.as_slice(), rows.first()) else {
        problems.push(format!(
            "there is no table '{}'; one that is not on this role's search_path is written with its schema \
             (\"shop.orders\"), and a name with capitals in quotes ('shop.\"Orders\"')",
            rule.table
        ));
        return Ok(None);
    };
    let table: String = row.try_get("table_name")?;
    if !row.try_get::<_, bool>("is_table")? {
        problems.push(format!("{table} is no table: its rows cannot be locked as orders"));
        return Ok(None);
    }
    let (set, versions) = others.split_at(set.min(others.len()));
    let has: Vec<&str> = row.try_get("has_columns")?;
    let named = ["as `id`", "as `status`", "as `due`"].into_iter().chain(std::iter::repeat("in `set`"));
    let columns = [id, status, due].into_iter().chain(set);
    for (column, how) in columns.zip(named).filter(|(column, _)| column.shown_type.is_none()) {
        let (name, hint) = (&column.name, tier::hint("the rule", &column.name, &has));
        problems.push(format!("{table} has no column {name}, which the rule names {how}; {hint}"));
    }
    id.is(&table, "id", &IDS, "bigint, uuid or text", problems);
    status.is(&table, "status", &STATUSES, "text, integer or an enum", problems);
    due.is_moment(&table, rule.time_zone.as_deref(), problems);
    let role: String = row.try_get("role_name")?;
    if !row.try_get::<_, bool>("may_enter")? {
        let schema: String = row.try_get("schema_name")?;
        problems.push(format!("missing privilege: grant usage on schema {schema} to {role};"));
    }
    let grants = missing_grants([id, status, due], set, &rule.action);
    if !grants.is_empty() {
        problems.push(format!("missing privilege: grant {grants} on {table} to {role};"));
    }
    let hides = row.try_get("hides")?;
    match hides {
        "all" => problems.push(hidden(&table, &role)),
        "some" => notes.push(partly_hidden(&table, &role)),
        _ => {}
    }
    let is_partitioned = row.try_get("is_partitioned")?;
    notes.extend(unkeyed(&table, id, is_partitioned));
    notes.extend(unversioned(&table, rule, versions));
    let (id_type, status_type) = (id.type_name.clone(), status.type_name.clone());
    let (is_policed, policies) = (hides == "some", row.try_get("policies")?);
    Ok(Some(Names { table, id_type, status_type, is_policed, policies, is_partitioned }))
}

/// The least that closing needs and the role does not have. A function of the user's has rights of its own, but a row is
/// locked only by whoever may update some of it.
fn missing_grants(read: [&Column; 3], set: &[Column], action: &Action) -> String {
    let unread = read.into_iter().filter(|column| column.shown_type.is_some() && !column.may_select);
    let status = read[1];
    let sets_status = action.to().is_some() || matches!(action, Action::Function(_));
    let written = sets_status.then_some(status).into_iter().chain(set);
    let unwritten = written.filter(|column| column.shown_type.is_some() && !column.may_update);
    let list = |verb: &str, names: Vec<&str>| (!names.is_empty()).then(|| format!("{verb} ({})", names.join(", ")));
    let unread = list("select", unread.map(|column| column.name.as_str()).collect());
    let unwritten = list("update", unwritten.map(|column| column.name.as_str()).collect());
    unread.into_iter().chain(unwritten).collect::<Vec<_>>().join(", ")
}

/// No policy lets the role do it, so there is no order to be locked: whoever looks would take each for unknown.
fn hidden(table: &str, role: &str) -> String {
    format!(
        "row-level security is on for {table}, and no policy lets {role} both read and update its rows: no order would be \
         closed; create policy duebox on {table} to {role} using (true); or: alter role {role} bypassrls;"
    )
}

fn partly_hidden(table: &str, role: &str) -> String {
    format!(
        "row-level security is on for {table}: orders that its policies hide from {role} are never closed; for all of them: \
         alter role {role} bypassrls;"
    )
}

/// A warning only: the conditions stand in the update as well, so that a paid order stays open whatever shares its id.
fn unkeyed(table: &str, id: &Column, is_partitioned: bool) -> Option<String> {
    let name = &id.name;
    let missing = if is_partitioned {
        format!("no index on column {name}, by which orders are closed: each close reads all of {table}: create index")
    } else {
        format!(
            "no unique index on column {name}, by which orders are closed: of orders that share an id all that are overdue \
             are closed at once, with one event, and each close may read all of {table}: create unique index concurrently"
        )
    };
    (id.shown_type.is_some() && !id.is_key).then(|| format!("{missing} on {table} ({name});"))
}

/// Version columns that closing leaves alone: whoever read the order before would write over its close.
fn unversioned(table: &str, rule: &Rule, versions: &[Column]) -> Vec<String> {
    let Action::Update { set, .. } = &rule.action else { return Vec::new() };
    let left = versions.iter().filter(|column| column.shown_type.is_some() && !set.contains_key(&column.name));
    let note = |column: &Column| {
        let name = &column.name;
        let cure = if column.kind.starts_with("int") {
            format!("set = {{ {name} = \"{name} + 1\" }}")
        } else {
            format!(
                "let `set` change it as the application does (it is {})",
                column.shown_type.as_deref().unwrap_or("?")
            )
        };
        format!(
            "{table} has a column {name} that the rule leaves alone: an application that checks it before it writes would \
             take a closed order for the one it has read, and bring it back; {cure}"
        )
    };
    left.map(note).collect()
}
