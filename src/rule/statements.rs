//! The statements over the user's own table. Its names stand in their text, so these are made here and not files in
//! `sql/`; what is fixed per rule is a constant in them, and each runs in psql as [`Statements`] prints it.
//!
//! Everything is qualified: closing runs under the role's own `search_path`, because the user's triggers do.

use crate::config::{Event, Rule};
use crate::outbox::migrate::{quote_ident, quote_literal};
use std::time::Duration;

/// Names of a rule's table, ready to stand in SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The table, qualified and quoted.
    pub(super) table: String,
    /// Type of the id column, qualified and quoted.
    pub(super) id_type: String,
    /// Type of the status column, likewise.
    pub(super) status_type: String,
}

/// What is asked of the orders of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statements {
    /// Overdue orders after a given one, oldest first, without locking any: $1 its due timestamptz (null: from the
    /// start), $2 its id text, $3 how many bigint.
    pub(super) find: String,
    /// Locks those of the orders $1 ids text[] that are free.
    pub(super) lock_free: String,
    /// Locks the orders $1 ids text[], waiting for those that somebody else has locked.
    pub(super) lock: String,
    /// Closes those of the locked orders that are to be closed, and says why of the others: $1 ids text[], $2 message
    /// ids uuid[] of their events, $3 who closes text.
    pub(super) close: String,
}

impl Statements {
    pub(super) fn new(name: &str, rule: &Rule, names: &Names, schema: &str) -> Self {
        let schema = quote_ident(schema);
        let own = Own {
            id: quote_ident(&rule.id),
            status: quote_ident(&rule.status),
            due: quote_ident(&rule.due),
            // Constants, not parameters: only these let the planner prove that an index `where status in (...)` serves.
            from: rule.from.iter().map(|one| constant(one, &names.status_type)).collect::<Vec<_>>().join(", "),
            after: interval(rule.after),
            going: format!(
                "not exists (select 1 from {schema}.state s where s.name in ('pause.sweep', {}))",
                quote_literal(&format!("pause.rule.{name}"))
            ),
        };
        Self {
            find: find(&own, names, &interval(rule.after + rule.grace)),
            lock_free: lock(&own, names, " skip locked"),
            lock: lock(&own, names, ""),
            close: close(&own, names, rule, name, &schema),
        }
    }
}

/// Quoted parts of the statements.
struct Own {
    id: String,
    status: String,
    due: String,
    from: String,
    after: String,
    going: String,
}

/// A constant of the column's own type.
fn constant(text: &str, type_name: &str) -> String {
    format!("{}::{type_name}", quote_literal(text))
}

/// In microseconds, so that no day in it is 23 or 25 hours long.
fn interval(length: Duration) -> String {
    format!("interval '{} microseconds'", length.as_micros())
}

/// Index: one that leads with the due column, whole or `where status in (...)`. An infinite due is never overdue: '-infinity' would
/// be at the head of every pass, and it has no time that an event could name.
fn find(own: &Own, names: &Names, overdue: &str) -> String {
    let Own { id, status, due, from, going, .. } = own;
    let Names { table, id_type, .. } = names;
    format!(
        "select o.{id}::text as id, o.{due} as due
  from {table} o
 where o.{status} in ({from})
   and o.{due} <= now() - {overdue}
   and o.{due} > '-infinity'
   and o.{due} >= coalesce($1::timestamptz, '-infinity')
   and ($1::timestamptz is null or (o.{due}, o.{id}) > ($1::timestamptz, $2::text::{id_type}))
   and {going}
 order by o.{due}, o.{id}
 limit $3::bigint"
    )
}

/// FOR UPDATE and not the weaker FOR NO KEY UPDATE, which would not see a payment row being inserted with a foreign key
/// to the order. Whatever else is to be asked of the order is asked when it is locked: what this statement sees of other
/// tables is older than the lock.
fn lock(own: &Own, names: &Names, how: &str) -> String {
    let Own { id, due, .. } = own;
    let Names { table, id_type, .. } = names;
    format!(
        "select o.{id}::text as id, o.{due} as due
  from {table} o
 where o.{id} = any ($1::text[]::{id_type}[])
 order by o.{id}
   for update of o{how}"
    )
}

/// One statement, so that an event without its close, or a close without its event, cannot be written. The locked row
/// cannot have changed between `look` and the update; the conditions stand in both all the same.
///
/// A trigger of the shop's may keep an order: only what is `to` afterwards is told.
fn close(own: &Own, names: &Names, rule: &Rule, name: &str, schema: &str) -> String {
    let Own { id, status, due, from, after, going } = own;
    let Names { table, id_type, status_type } = names;
    let to = constant(&rule.to, status_type);
    let closed = format!(
        "with look as materialized (
    select o.{id} as id, o.{status} as was,
           case when isfinite(o.{due}) then o.{due} + {after} end as due_at,
           case when not {going} then 'paused'
                when (o.{status} in ({from})) is not true then 'status'
                when isfinite(o.{due}) is not true then 'undated'
                when o.{due} > now() - {after} then 'early'
            end as kept
      from {table} o
     where o.{id} = any ($1::text[]::{id_type}[])),
closed as (
    update {table} o set {status} = {to}
     where o.{id} in (select l.id from look l where l.kept is null)
       and o.{status} in ({from})
       and o.{due} <= now() - {after}
    returning o.{id} as id, o.{status} as status, o.{status} = {to} as done),
named as (
    select id, message_id from unnest($1::text[]::{id_type}[], $2::uuid[]) as n (id, message_id))"
    );
    let event = rule.event.as_ref().map_or_else(String::new, |event| write_event(event, name, schema));
    let (written, join) = match rule.event {
        Some(_) => ("e.message_id is not null", " left join event e using (message_id)"),
        None => ("false", ""),
    };
    format!(
        "{closed}{event}
select l.id::text as id, l.was::text as was, l.kept, c.done, {written} as written, $3::text as by,
       extract(epoch from now() - l.due_at)::float8 as late
  from look l join named n using (id) left join closed c using (id){join}"
    )
}

/// The event of each order that was closed.
fn write_event(event: &Event, name: &str, schema: &str) -> String {
    let routing_key = event.routing_key.as_deref().map_or_else(|| "null".to_owned(), quote_literal);
    let (tier, type_, name) = (quote_literal(&event.tier), quote_literal(&event.type_), quote_literal(name));
    format!(
        ",
event as (
    insert into {schema}.outbox (message_id, tier, key, type, routing_key, payload)
    select n.message_id, {tier}, c.id::text, {type_}, {routing_key}, jsonb_build_object(
               'id', c.id, 'rule', {name}::text, 'from', l.was, 'to', c.status,
               'due_at', l.due_at, 'closed_at', now(), 'by', $3::text)
      from closed c join look l using (id) join named n using (id)
     where c.done
    on conflict (message_id) do nothing
    returning message_id)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        Rule {
            table: "orders".into(),
            id: "Id".into(),
            status: "status".into(),
            from: vec!["it's new".into(), "open".into()],
            to: "closed".into(),
            due: "created_at".into(),
            after: Duration::from_secs(1800),
            tier: None,
            event: None,
            every: Duration::from_secs(300),
            grace: Duration::from_millis(1500),
        }
    }

    fn statements(rule: &Rule) -> Statements {
        let names = Names {
            table: "shop.orders".into(),
            id_type: "pg_catalog.int8".into(),
            status_type: "shop.\"State\"".into(),
        };
        Statements::new("un'paid", rule, &names, "Out Box")
    }

    #[test]
    fn every_name_and_constant_is_quoted() {
        let all = statements(&rule());
        let from = "in ('it''s new'::shop.\"State\", 'open'::shop.\"State\")";
        for text in [&all.find, &all.close] {
            assert!(text.contains(from) && text.contains("\"Id\""), "{text}");
        }
        assert!(all.find.contains("\"Out Box\".state s where s.name in ('pause.sweep', 'pause.rule.un''paid')"));
    }

    #[test]
    fn finding_waits_for_the_grace_and_closing_does_not() {
        let all = statements(&rule());
        assert!(all.find.contains("<= now() - interval '1801500000 microseconds'"), "{}", all.find);
        assert!(all.close.contains("<= now() - interval '1800000000 microseconds'"), "{}", all.close);
    }

    #[test]
    fn without_an_event_nothing_is_written_to_the_outbox() {
        assert!(!statements(&rule()).close.contains("insert into"));
    }
}
