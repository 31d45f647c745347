//! `trace` finds whatever is known of a key, says where its messages should be, and what to do next.
//!
//! It asks the database only: here there is no broker at all, unless a test starts a daemon.

mod life;
mod orders;
mod promise;
mod rights;
mod rows;

use super::Desk;
use serde_json::Value;

/// A delay, a straight way, and a rule over a table of orders.
const SHOP: &str = "[tier.now]\ntarget = { queue = \"closed\" }\n\
    [tier.order-30m]\ndelay = \"30m\"\nqueue = \"waiting\"\ntarget = { queue = \"due\" }\n\
    [tier.events]\ntarget = { exchange = \"amq.topic\" }\n\
    [rule.unpaid]\ntable = \"orders\"\nid = \"id\"\nstatus = \"status\"\nfrom = [\"pending\"]\nto = \"closed\"\n\
    due = \"due\"\ntier = \"order-30m\"\nevent = { tier = \"now\", type = \"order.closed\" }\n";

const ORDERS: &str = "create table orders (id bigint primary key, status text, due timestamptz not null); \
    create index on orders (due)";

impl Desk {
    /// What `trace --json` knows of a key.
    #[track_caller]
    fn known(&self, key: &str) -> Value {
        let (code, json) = self.run(&["trace", key, "--json"]);
        assert_eq!(code, 0, "{json}");
        serde_json::from_str(&json).unwrap()
    }

    /// The next step for a key.
    #[track_caller]
    fn next(&self, key: &str) -> String {
        self.known(key)["next"].as_str().unwrap().to_owned()
    }
}
