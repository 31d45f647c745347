//! The statements over the user's own table. Its names stand in their text, so these are made here and not files in
//! `sql/`; what is fixed per rule is a constant in them, and each is plain SQL that psql can prepare.
//!
//! Everything of ours is qualified: they run under the role's own `search_path`, because the user's triggers and
//! expressions do. An expression of the user's stands where nothing but the order `o` can be named.

mod closing;

use super::terms::{Names, Terms};
use crate::config::{Action, Rule};
use crate::outbox::migrate::{quote_ident, quote_literal};
use std::time::Duration;

pub(super) use closing::{assignment, look};

/// Overdue orders that `not_before` leaves alone are counted up to here.
pub(super) const MANY: i64 = 10_000;

/// What is asked of the orders of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statements {
    /// Overdue orders after a given one, oldest first, without locking any, each with whether the guard lets it be
    /// closed: $1 its due (null: from the start), $2 its id text, $3 how many bigint.
    pub(super) find: String,
    /// The same without asking the guard, which may raise for one of them and keep all others from being found; none where
    /// there is no guard.
    pub(super) find_unguarded: Option<String>,
    /// How many overdue orders `not_before` leaves alone; none where the rule has no such moment.
    pub(super) older: Option<String>,
    /// Locks those of the orders $1 ids text[] that are free.
    pub(super) lock_free: String,
    /// Locks the orders $1 ids text[], waiting for those that somebody else has locked.
    pub(super) lock: String,
    /// Of orders $1 ids text[] that were not there to be locked: whether any is there for reading, whether row-level
    /// security is on for this role, and whether its policies are those that the statements were made under.
    pub(super) missing: String,
    /// Of each of the orders $1 ids text[] whether the rule still applies to it, when all triggers have run.
    pub(super) still: String,
    /// What is done to the locked orders.
    pub(super) close: Close,
}

/// What is done to the locked orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Close {
    /// Closes those that are to be closed, and says why of the others: $1 ids text[], $2 message ids uuid[] of their
    /// events, $3 who closes text.
    Update(String),
    /// The function of the user's.
    Function {
        /// Calls it for the orders $1 ids text[] that are to be closed, and says why of the others; $2 who closes text.
        call: String,
        /// Says of the orders $1 ids text[] for which it was called whether the rule still applies to them, and writes
        /// the events of those to which it does not: $2 message ids uuid[], $3 who closes text, $4 their statuses
        /// before text[], $5 when they were overdue timestamptz[].
        finish: String,
    },
}

impl Statements {
    /// The rule's function has its name qualified and quoted.
    ///
    /// The guard is looked at while looking for orders: cheap where it reads nothing but the order, so that an index can
    /// serve it; otherwise once for each that was found, so that every look ends.
    pub(super) fn new(name: &str, rule: &Rule, names: &Names, schema: &str, (cheap_guard, void): (bool, bool)) -> Self {
        let schema = quote_ident(schema);
        let terms = Terms::new(name, rule, names, &schema);
        let (filter, column) =
            if cheap_guard { (terms.guard.as_str(), "true") } else { ("true", terms.guard.as_str()) };
        let overdue = overdue(&terms, names, rule.grace);
        let close = match &rule.action {
            Action::Update { to, set } => {
                Close::Update(closing::update(&terms, names, rule, name, &schema, (to.as_deref(), set)))
            }
            Action::Function(function) => Close::Function {
                call: closing::call(&terms, names, (function, void)),
                finish: closing::finish(&terms, names, rule, name, &schema),
            },
        };
        Self {
            find: find(&terms, names, &overdue, filter, column),
            find_unguarded: rule.guard.as_ref().map(|_| find(&terms, names, &overdue, "true", "true")),
            older: rule.not_before.map(|_| older(&terms, &overdue, filter)),
            lock_free: lock_free(&terms, names),
            lock: lock(&terms, names, ""),
            missing: missing(&terms, names),
            still: still(&terms, names),
            close,
        }
    }
}

/// Where overdue orders are. An infinite due is never overdue: '-infinity' would be at the head of every pass, and it has
/// no time that an event could name. Where the id is no key it may be null, and nobody could lock that order by it.
fn overdue(terms: &Terms, names: &Names, grace: Duration) -> String {
    let (Terms { id, status, due, from, .. }, going) = (terms, terms.going());
    format!(
        "  from {table} o
 where o.{status} in ({from})
   and {overdue}
   and o.{due} > '-infinity'
   and o.{id} is not null
   and {going}",
        table = names.table,
        overdue = terms.overdue(grace)
    )
}

/// Index: one that leads with the due column, whole or `where status in (...)`.
fn find(terms: &Terms, names: &Names, overdue: &str, filter: &str, column: &str) -> String {
    let (Terms { id, due, .. }, id_type, due_type) = (terms, &names.id_type, terms.due_type());
    let recent = terms.recent();
    format!(
        "select o.{id}::text as id, o.{due} as due, {column} is true as applies
{overdue}
   and {recent}
   and {filter}
   and o.{due} >= coalesce($1::{due_type}, '-infinity')
   and ($1::{due_type} is null or (o.{due}, o.{id}) > ($1::{due_type}, $2::text::{id_type}))
 order by o.{due}, o.{id}
 limit $3::bigint"
    )
}

fn older(terms: &Terms, overdue: &str, filter: &str) -> String {
    let recent = terms.recent();
    format!(
        "select count(*) from (
select 1
{overdue}
   and not ({recent})
   and {filter}
 limit {MANY}) as older"
    )
}

/// Locks those that are free.
pub(super) fn lock_free(terms: &Terms, names: &Names) -> String {
    lock(terms, names, " skip locked")
}

/// FOR UPDATE and not the weaker FOR NO KEY UPDATE, which would not see a payment row being inserted with a foreign key
/// to the order. Whatever else is to be asked of the order is asked when it is locked: what this statement sees of other
/// tables is older than the lock.
fn lock(terms: &Terms, names: &Names, how: &str) -> String {
    let (Terms { id, .. }, Names { table, id_type, .. }) = (terms, names);
    format!(
        "select o.{id}::text as id
  from {table} o
 where o.{id} = any ($1::text[]::{id_type}[])
 order by o.{id}
   for update of o{how}"
    )
}

/// What row-level security lets be read it need not let be locked, and it may have been switched on a moment ago. The text is
/// made as `sql/rule_table.sql` makes it.
fn missing(terms: &Terms, names: &Names) -> String {
    let (Terms { id, .. }, Names { table, id_type, policies, .. }) = (terms, names);
    let (name, policies) = (quote_literal(table), quote_literal(policies));
    format!(
        "select exists (select 1 from {table} o where o.{id} = any ($1::text[]::{id_type}[])) as seen, active as policed,
       active::text || coalesce((select md5(string_agg(p::text, '' order by p.oid)) from pg_catalog.pg_policy p
                                  where p.polrelid = {name}::regclass), '') = {policies} as as_prepared
  from pg_catalog.row_security_active({name}) as active"
    )
}

/// In the list and not as a condition: a guard is asked of no other order.
fn still(terms: &Terms, names: &Names) -> String {
    let (Terms { id, .. }, Names { table, id_type, .. }, applies) = (terms, names, terms.applies());
    format!(
        "select o.{id}::text as id, {applies} is true as still\n  from {table} o\n where o.{id} = any ($1::text[]::{id_type}[])"
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Mode;

    pub(in crate::rule) fn rule() -> Rule {
        Rule {
            table: "orders".into(),
            id: "Id".into(),
            status: "status".into(),
            from: vec!["it's new".into(), "open".into()],
            due: "created_at".into(),
            time_zone: None,
            after: Duration::from_secs(1800),
            guard: None,
            not_before: None,
            mode: Mode::Enforce,
            action: Action::Update { to: Some("closed".into()), set: [("Closed".into(), "now()".into())].into() },
            tier: None,
            checks: Vec::new(),
            id_pointer: None,
            event: None,
            every: Duration::from_secs(300),
            grace: Duration::from_millis(1500),
        }
    }

    fn statements(rule: &Rule) -> (Statements, String) {
        let names = Names {
            table: "shop.orders".into(),
            id_type: "pg_catalog.int8".into(),
            status_type: "shop.\"State\"".into(),
            is_policed: false,
            policies: "false".into(),
            is_partitioned: false,
        };
        let statements = Statements::new("un'paid", rule, &names, "Out Box", (true, false));
        let Close::Update(close) = statements.close.clone() else { panic!("a function") };
        (statements, close)
    }

    #[test]
    fn every_name_and_constant_is_quoted() {
        let (all, close) = statements(&rule());
        let from = "in ('it''s new'::shop.\"State\", 'open'::shop.\"State\")";
        for text in [&all.find, &close] {
            assert!(text.contains(from) && text.contains("\"Id\""), "{text}");
        }
        assert!(close.contains("\"Closed\" = (\nnow()\n)"), "{close}");
        assert!(all.find.contains("\"Out Box\".state s where s.name in ('pause.sweep', 'pause.rule.un''paid')"));
    }

    #[test]
    fn finding_waits_for_the_grace_and_closing_does_not() {
        let (all, close) = statements(&rule());
        assert!(all.find.contains("<= now() - interval '1801500000 microseconds'"), "{}", all.find);
        assert!(close.contains("<= now() - interval '1800000000 microseconds'"), "{close}");
    }

    #[test]
    fn without_an_event_nothing_is_written_to_the_outbox() {
        assert!(!statements(&rule()).1.contains("insert into"));
    }
}
