//! Which name somebody may have meant.

/// The name among `known` that is nearest to `name` by edit distance, if any is near enough to be a typo of it.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(2);
    known
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Most names of a hint: a log line is no list.
const SHOWN: usize = 10;

/// What `whoever` used a name that is not among `known` may have meant, in words.
#[must_use]
pub fn hint(whoever: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("did {whoever} mean '{nearest}'?"),
        None if known.is_empty() => "it has none".to_owned(),
        None if known.len() > SHOWN => format!("it has {}, ... ({} in all)", known[..SHOWN].join(", "), known.len()),
        None => format!("it has {}", known.join(", ")),
    }
}

/// Levenshtein distance, one row at a time.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_answered_with_the_nearest_name() {
        let known = ["order-30m", "order-2h", "now"];
        assert_eq!(nearest("ordr-30m", known.into_iter()), Some("order-30m"));
        assert_eq!(nearest("order-3m", known.into_iter()), Some("order-30m"));
        assert_eq!(nearest("warehouse", known.into_iter()), None);
    }

    #[test]
    fn a_hint_names_the_nearest_or_what_there_is() {
        let many: Vec<String> = (0..12).map(|n| format!("{n}{n}{n}{n}{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hint("you", "nwo", &["now", "order-30m"]), "did you mean 'now'?");
        assert_eq!(hint("you", "elsewhere", &["now", "order-30m"]), "it has now, order-30m");
        assert_eq!(hint("you", "elsewhere", &[]), "it has none");
        assert!(hint("you", "elsewhere", &many).ends_with(", 99999, ... (12 in all)"));
    }
}
