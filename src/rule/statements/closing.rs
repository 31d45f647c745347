//! What is done to locked orders: an update or a function of the user's, with the event in the same transaction.

use super::super::terms::{Names, Terms, constant, expression, interval};
use crate::config::{Event, Rule};
use crate::outbox::migrate::{quote_ident, quote_literal};
use std::collections::BTreeMap;

/// One statement, so that an event without its close, or a close without its event, cannot be written. A locked row
/// cannot change between the look and the update; the conditions on it stand in both all the same, since an id that is
/// not unique would bring rows into the update that the look has kept. The planner asks conditions of whatever rows it
/// comes by, in whatever order, and a guard may raise (`100 / o.n > 0`) or be slow: it stands behind a fence, so that
/// no order is asked but those that are named.
///
/// A trigger of the shop's may keep an order, and what is set may leave the rule applying: only an order that is `to`
/// afterwards, or to which the rule no longer applies, is done.
pub(super) fn update(
    terms: &Terms,
    names: &Names,
    rule: &Rule,
    name: &str,
    schema: &str,
    (to, set): (Option<&str>, &BTreeMap<String, String>),
) -> String {
    let Terms { id, status, from, guard, .. } = terms;
    let recent = terms.recent();
    let (look, overdue, table) =
        (look(terms, names, "$3::text"), terms.overdue(std::time::Duration::ZERO), &names.table);
    let to = to.map(|to| constant(to, &names.status_type));
    let columns = to.iter().map(|to| format!("{status} = {to}"));
    let columns =
        columns.chain(set.iter().map(|(column, value)| assignment(column, value))).collect::<Vec<_>>().join(", ");
    let done = match to {
        Some(to) => format!("o.{status} = {to}"),
        None => format!("{} is not true", terms.applies()),
    };
    let (event, payload) = (event(rule, name, schema), payload(rule));
    format!(
        "{look},
closed as (
    update {table} o set {columns}
     where o.{id} in (select l.id from duebox_look l where l.kept is null)
       and o.{status} in ({from})
       and {overdue}
       and {recent}
       and case when o.{id} = any ($1::text[]::{id_type}[]) and o.{status} in ({from}) then {guard} end
    returning o.{id} as id, o.{status} as status, {done} as done{payload}),
named as (
    select id, message_id from unnest($1::text[]::{id_type}[], $2::uuid[]) as n (id, message_id)),
done as (
    select c.*, l.was, l.due_at, n.message_id
      from closed c join duebox_look l using (id) join named n using (id)
     where c.done){event}
select l.id::text as id, l.was::text as was, c.status::text as status, l.kept, l.due_at, c.done,
       $3::text as by, extract(epoch from now() - l.due_at)::float8 as late
  from duebox_look l left join closed c using (id)",
        id_type = names.id_type,
    )
}

/// Why each of the orders $1 ids text[] is not to be closed, and when it was overdue. The first of the statement's parts, and
/// its name one that no table of the shop's has: the user's expressions must not meet it.
///
/// `by` is an expression for who closes. Whoever is paused has said nothing about the rule, so that comes first.
pub(crate) fn look(terms: &Terms, names: &Names, by: &str) -> String {
    let Terms { id, status, due, from, guard, .. } = terms;
    let (paused, asker_paused) = (terms.paused(), terms.asker_paused(by));
    let (Names { table, id_type, .. }, due_at, recent) = (names, terms.due_at(), terms.recent());
    let (after, overdue) = (interval(terms.after), terms.overdue(std::time::Duration::ZERO));
    format!(
        "with duebox_look as materialized (
    select o.{id} as id, o.{status} as was,
           case when isfinite(o.{due}) then {due_at} + {after} end as due_at,
           case when {asker_paused} then 'asker_paused'
                when {paused} then 'paused'
                when (o.{status} in ({from})) is not true then 'status'
                when isfinite(o.{due}) is not true then 'undated'
                when ({overdue}) is not true then 'early'
                when ({recent}) is not true then 'not_before'
                when {guard} is not true then 'guard'
            end as kept
      from {table} o
     where o.{id} = any ($1::text[]::{id_type}[]))"
    )
}

/// Calls the function once for each order that is to be closed. Its answer as text: void is empty.
pub(super) fn call(terms: &Terms, names: &Names, (function, void): (&str, bool)) -> String {
    let look = look(terms, names, "$2::text");
    // Nothing is null from a function in SQL, and an empty text from one in PL/pgSQL.
    let said = if void { format!("coalesce({function}(l.id)::text, '')") } else { format!("{function}(l.id)::text") };
    format!(
        "{look}
select l.id::text as id, l.was::text as was, l.kept, l.due_at, extract(epoch from now() - l.due_at)::float8 as late,
       case when l.kept is null then {said} end as said
  from duebox_look l"
    )
}

/// A statement of its own, because what the function did is seen by the next one only. An order that it deleted is done.
pub(super) fn finish(terms: &Terms, names: &Names, rule: &Rule, name: &str, schema: &str) -> String {
    let (Terms { id, status, .. }, Names { table, id_type, status_type, .. }) = (terms, names);
    let (applies, payload, event) = (terms.applies(), payload(rule), event(rule, name, schema));
    format!(
        "with duebox_look as materialized (
    select o.{id} as id, o.{status} as status, {applies} is not true as done{payload}
      from {table} o
     where o.{id} = any ($1::text[]::{id_type}[])),
named as (
    select * from unnest($1::text[]::{id_type}[], $2::uuid[], $4::text[]::{status_type}[], $5::timestamptz[])
        as n (id, message_id, was, due_at)),
done as (
    select n.*, l.status{has_payload} from named n left join duebox_look l using (id) where l.done is not false){event}
select n.id::text as id, n.was::text as was, l.status::text as status, l.done is not false as done,
       $3::text as by, extract(epoch from now() - n.due_at)::float8 as late
  from named n left join duebox_look l using (id)",
        has_payload = if payload.is_empty() { "" } else { ", l.payload" },
    )
}

/// An assignment of an update.
pub(crate) fn assignment(column: &str, value: &str) -> String {
    format!("{} = {}", quote_ident(column), expression(value))
}

/// The payload that the rule has its own expression for, as a column.
fn payload(rule: &Rule) -> String {
    let payload = rule.event.as_ref().and_then(|event| event.payload.as_deref());
    payload.map_or_else(String::new, |payload| format!(", {}::jsonb as payload", expression(payload)))
}

/// The event of each order in `done`; one for orders that share their id.
fn event(rule: &Rule, name: &str, schema: &str) -> String {
    let Some(event) = &rule.event else { return String::new() };
    let Event { tier, type_, routing_key, payload } = event;
    let routing_key = routing_key.as_deref().map_or_else(|| "null".to_owned(), quote_literal);
    let (tier, type_, name) = (quote_literal(tier), quote_literal(type_), quote_literal(name));
    let payload = match payload {
        Some(_) => "d.payload".to_owned(),
        None => format!(
            "jsonb_build_object(
               'id', d.id, 'rule', {name}::text, 'from', d.was, 'to', d.status,
               'due_at', d.due_at, 'closed_at', now(), 'by', $3::text)"
        ),
    };
    format!(
        ",
event as (
    insert into {schema}.outbox (message_id, tier, key, type, routing_key, payload)
    select distinct on (d.message_id) d.message_id, {tier}, d.id::text, {type_}, {routing_key}, {payload}
      from done d)"
    )
}
