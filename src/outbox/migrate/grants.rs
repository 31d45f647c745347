//! The rights of the two kinds of roles. Neither can create, alter or drop anything.

use super::error::MigrateError;
use super::ident::{quote_role, quote_schema};

/// The roles to grant to. Granting twice is the same as granting once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Applications that write orders: they enqueue and cancel, and cannot read what others wrote.
    pub producers: Vec<String>,
    /// The daemon's role.
    pub relays: Vec<String>,
}

impl Grants {
    /// Every role named, producers first.
    pub(super) fn roles(&self) -> impl Iterator<Item = &str> {
        self.producers.iter().chain(&self.relays).map(String::as_str)
    }

    /// The GRANT statements, schema-qualified so that they also run by themselves.
    pub(super) fn sql(&self, schema: &str) -> Result<String, MigrateError> {
        let schema = quote_schema(schema)?;
        let mut text = String::new();
        for role in &self.producers {
            text.push_str(&producer(&schema, &quote_role(role)?));
        }
        for role in &self.relays {
            text.push_str(&relay(&schema, &quote_role(role)?));
        }
        Ok(text)
    }
}

/// INSERT without the life-cycle columns: a row always starts pending. SELECT on two columns is
/// what `on conflict (message_id) do nothing` and `returning id, message_id` need.
fn producer(schema: &str, role: &str) -> String {
    format!(
        "grant usage on schema {schema} to {role};
grant execute on function
    {schema}.enqueue(text, text, text, text, timestamptz, text, text, uuid),
    {schema}.cancel(uuid), {schema}.cancel(text, text)
    to {role};
grant insert (message_id, tier, key, type, routing_key, payload, body, content_type, headers, created_at, due_at),
    select (id, message_id)
    on {schema}.outbox to {role};
"
    )
}

/// UPDATE on what a verdict changes and no more: a relay cannot alter a message. INSERT is for the
/// events of rules, DELETE for retention.
fn relay(schema: &str, role: &str) -> String {
    format!(
        "grant usage on schema {schema} to {role};
grant select, insert, delete, update (available_at, attempts, last_error, sent_at, parked_at, cancelled_at)
    on {schema}.outbox to {role};
grant select, insert, update, delete on {schema}.state to {role};
grant execute on function
    {schema}.cancel(uuid), {schema}.cancel(text, text),
    {schema}.requeue(uuid), {schema}.requeue(text, text), {schema}.ring()
    to {role};
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_names_the_role_quoted() {
        let grants = Grants { producers: vec!["sh\"op".into()], relays: vec!["duebox relay".into()] };
        let text = grants.sql("Out Box").unwrap();
        assert_eq!(text.matches(" to \"sh\"\"op\";").count(), 3, "{text}");
        assert_eq!(text.matches(" to \"duebox relay\";").count(), 4, "{text}");
        assert_eq!(text.matches(';').count(), 7, "{text}");
    }

    #[test]
    fn a_bad_role_name_is_refused_before_anything_runs() {
        let grants = Grants { producers: vec!["shop".into()], relays: vec![String::new()] };
        assert_eq!(grants.sql("duebox").unwrap_err().to_string(), "role name \"\" is empty");
    }
}
