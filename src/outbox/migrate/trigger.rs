//! Whether inserts ring.

/// The trigger that rings for the relays.
const BELL: &str = include_str!("../../../sql/migrations/always_doorbell.sql");

/// What becomes of the trigger that wakes the relays. The choice is kept in the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trigger {
    /// As it was chosen before; a new schema has one.
    #[default]
    Keep,
    /// Inserts ring.
    On,
    /// They do not, and relays poll: for producers that use PREPARE TRANSACTION, since a transaction that has rung cannot
    /// be prepared.
    Off,
}

impl Trigger {
    /// The statements, to be run in the schema.
    pub(super) fn sql(self) -> String {
        let choice = match self {
            Self::Keep => "",
            Self::On => "delete from state where name = 'doorbell';\n",
            Self::Off => {
                "insert into state (name, info) values ('doorbell', '{\"trigger\": \"off\"}')\n    \
                 on conflict (name) do update set at = now(), info = excluded.info;\n"
            }
        };
        format!("{choice}{BELL}")
    }
}
