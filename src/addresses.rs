//! The addresses that one name stands for, tried in turn under one deadline.

use std::future::Future;
use std::time::{Duration, Instant};

/// The first of `all` that `connect` succeeds with, else what the last one said; `None` when there are none.
///
/// Together they have `limit`, and each an equal part of what is left of it: one that is dead, such as an IPv6 address
/// without a route, must not keep the others from their turn. What it does not need, the later ones have.
pub(crate) async fn first<A, T, E, F>(
    all: Vec<A>,
    limit: Duration,
    connect: impl Fn(A, Duration) -> F,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let (mut left, mut rest, mut said) = (u32::try_from(all.len()).unwrap_or(u32::MAX), limit, None);
    for address in all {
        let started = Instant::now();
        match Box::pin(connect(address, rest / left.max(1))).await {
            Ok(made) => return Some(Ok(made)),
            Err(error) => said = Some(Err(error)),
        }
        rest = rest.saturating_sub(started.elapsed());
        left = left.saturating_sub(1);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    const LIMIT: Duration = Duration::from_secs(2);

    /// `dead` never answers, `bad` refuses, anything else lets us in.
    async fn connect(address: &str, part: Duration) -> Result<(String, Duration), String> {
        match address {
            "dead" => tokio::time::timeout(part, pending()).await.map_err(|_| "no answer".to_owned())?,
            "bad" => Err("refused".to_owned()),
            good => Ok((good.to_owned(), part)),
        }
    }

    #[tokio::test]
    async fn the_second_address_has_its_turn_when_the_first_is_dead() {
        let within = tokio::time::timeout(LIMIT, first(vec!["dead", "good"], LIMIT, connect));
        let (made, part) = within.await.expect("within the limit of both").unwrap().unwrap();
        assert_eq!(made, "good");
        assert!(part > LIMIT / 4 && part <= LIMIT / 2, "{part:?} of {LIMIT:?}");
    }

    #[tokio::test]
    async fn what_a_refusal_does_not_need_is_left_to_the_others() {
        let (_, part) = first(vec!["bad", "bad", "good"], LIMIT, connect).await.unwrap().unwrap();
        assert!(part > LIMIT / 2, "{part:?} of {LIMIT:?}");
        assert_eq!(first(vec!["dead", "bad"], LIMIT, connect).await, Some(Err("refused".to_owned())));
        assert_eq!(first(vec![], LIMIT, connect).await, None);
    }
}
