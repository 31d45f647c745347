//! Whether a message reaches a queue: bindings as the broker matches them. Pure.

/// A binding of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) destination: String,
    /// The destination is an exchange, not a queue.
    pub(super) exchange: bool,
    pub(super) key: String,
}

/// Whether an exchange of that type takes a message with `key` through `binding`; none: it looks at more than the key.
pub(super) fn takes(kind: &str, binding: &Binding, key: &str) -> Option<bool> {
    match kind {
        "direct" => Some(binding.key == key),
        "fanout" => Some(true),
        "topic" => {
            let words = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
            Some(topic(&words(&binding.key), &words(key)))
        }
        _ => None,
    }
}

/// `*` is one word, `#` any number of them.
fn topic(pattern: &[String], key: &[String]) -> bool {
    match pattern {
        [] => key.is_empty(),
        [any, rest @ ..] if any == "#" => (0..=key.len()).any(|skipped| topic(rest, &key[skipped..])),
        [word, rest @ ..] => match key {
            [first, others @ ..] => (word == "*" || word == first) && topic(rest, others),
            [] => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_as_the_broker_matches_them() {
        let binding = |key: &str| Binding { destination: "q".into(), exchange: false, key: key.into() };
        for (kind, pattern, key, expected) in [
            ("direct", "a.b", "a.b", Some(true)),
            ("direct", "#", "a", Some(false)),
            ("fanout", "x", "y", Some(true)),
            ("topic", "order.*.paid", "order.eu.paid", Some(true)),
            ("topic", "order.*.paid", "order.paid", Some(false)),
            ("topic", "order.#", "order", Some(true)),
            ("topic", "#.paid", "order.eu.paid", Some(true)),
            ("topic", "order.*", "order.eu.paid", Some(false)),
            ("headers", "", "k", None),
        ] {
            assert_eq!(takes(kind, &binding(pattern), key), expected, "{kind} {pattern} {key}");
        }
    }
}
