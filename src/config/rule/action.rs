//! What closing does: `to`, `set` or `function` of a rule.

use std::collections::BTreeMap;

use super::super::shape::{Raw, quote, text};
use super::super::table::{Entry, Table, dotted};
use super::values::{expression, status_text};
use super::{MAX_IDENTIFIER, MAX_TEXT};

/// What closing does to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It updates the order's row.
    Update {
        /// The status that it gets; none of `from`.
        to: Option<String>,
        /// Columns that are set besides, each to an SQL expression over the row `o`. There is one where `to` is none.
        set: BTreeMap<String, String>,
    },
    /// It calls a function of the user's with the order's id; returns boolean or void.
    Function(String),
}

impl Action {
    /// Whether it closes orders, rather than setting columns of theirs: a reminder is applied to an order.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.to().is_some() || matches!(self, Self::Function(_))
    }

    /// What becomes of `orders` by it, in words: `how` they would, could not, or cannot be closed, or it applied to them.
    pub(crate) fn said(&self, how: &str, orders: &str) -> String {
        if self.closes() { format!("{orders} {how} be closed") } else { format!("{how} be applied to {orders}") }
    }

    /// The status that it sets by itself.
    #[must_use]
    pub fn to(&self) -> Option<&str> {
        match self {
            Self::Update { to, .. } => to.as_deref(),
            Self::Function(_) => None,
        }
    }
}

/// Reads the three keys.
pub(super) fn read(
    table: &mut Table<'_>,
    [id, status]: [&Option<String>; 2],
    from: Option<&[String]>,
) -> Option<Action> {
    let bare = !["to", "set", "function"].into_iter().any(|key| table.has(key));
    let to = if bare { table.required("to", &status_text(), TO) } else { table.optional("to", &status_text()) };
    let set = read_set(table);
    let function = table.optional("function", &text(MAX_TEXT));
    if let (Some(from), Some(to)) = (from, &to)
        && from.contains(to)
    {
        table.problem("to", "must not be one of `from`: closing would have to be done again for ever");
    }
    if id.as_ref().is_some_and(|id| set.contains_key(id)) {
        table.problem("set", "must not set the column `id`: by it the order is told from others");
    }
    if to.is_some() && status.as_ref().is_some_and(|status| set.contains_key(status)) {
        table.problem("set", "must not set the column `status`, which `to` sets");
    }
    match function {
        Some(_) if to.is_some() || !set.is_empty() => {
            table.problem("function", "must not be set together with `to` or `set`: the function does it all");
            None
        }
        Some(function) => Some(Action::Function(function)),
        None if to.is_none() && set.is_empty() => None,
        None => Some(Action::Update { to, set }),
    }
}

/// Why `to` is missed.
const TO: &str = "the status that closing sets; a rule without it needs `set` or `function`";

/// `set`: columns and the expressions that they are set to.
fn read_set(table: &mut Table<'_>) -> BTreeMap<String, String> {
    let (mut set, shape) = (BTreeMap::new(), expression());
    let Some(columns) = table.table("set") else { return set };
    let mut empty = true;
    columns.drain(|reader, path, key, raw| {
        empty = false;
        let origin = reader.origin(path);
        match read_column(key, &raw).and_then(|()| (shape.read)(&raw)) {
            Ok(value) => {
                let section = path[..path.len() - 1].to_vec();
                reader.entries.push(Entry { section, key: key.to_owned(), value: Some(quote(&value)), origin });
                set.insert(key.to_owned(), value);
            }
            Err(rule) => {
                let (key, value) = (dotted(path), Some(raw.show()));
                reader.problems.push(super::super::Problem { key, value, rule, origin });
            }
        }
    });
    if empty {
        table.problem("set", "must have at least one column");
    }
    set
}

fn read_column(name: &str, raw: &Raw<'_>) -> Result<(), String> {
    if raw.env {
        return Err("must be set in the file: a variable does not have the case of a column".to_owned());
    }
    if name.is_empty() || name.len() > MAX_IDENTIFIER {
        return Err(format!("must have the name of a column, 1 to {MAX_IDENTIFIER} bytes long"));
    }
    Ok(())
}
