//! Metrics say what rules did, from 0 on.

use super::shop::Shop;
use crate::support::wait::{secs, wait_until};
use duebox::admin::metrics::Metrics;
use duebox::rule::{FAILED, Kept};

const LONG_AGO: f64 = 2_000.0;

/// The values of a metric by its labels.
fn value(text: &str, of: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(of)).and_then(|rest| rest.trim().parse().ok())
}

#[test]
fn everything_of_a_rule_is_there_at_zero_from_the_start() {
    let metrics = Metrics::default();
    let reasons: Vec<&str> = Kept::REASONS.into_iter().chain([FAILED]).collect();
    metrics.rules.start_at_zero(["unpaid".to_owned()].iter(), &reasons);
    let text = metrics.render().unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("duebox_rule_")).collect();
    for by in ["sweep", "closer"] {
        let labels = format!("rule=\"unpaid\",by=\"{by}\"");
        assert_eq!(value(&text, &format!("duebox_rule_closed_total{{{labels}}}")), Some(0.0), "{text}");
        assert_eq!(value(&text, &format!("duebox_rule_lateness_seconds_count{{{labels}}}")), Some(0.0), "{text}");
        for reason in &reasons {
            let of = format!("duebox_rule_refused_total{{{labels},reason=\"{reason}\"}}");
            assert_eq!(value(&text, &of), Some(0.0), "{of}");
        }
    }
    for of in ["duebox_rule_last_pass_timestamp_seconds", "duebox_rule_observed"] {
        assert_eq!(value(&text, &format!("{of}{{rule=\"unpaid\"}}")), Some(0.0), "{of}");
    }
    assert!(lines.iter().all(|line| line.ends_with(" 0") || line.ends_with(" 0.0")), "{lines:?}");
}

#[tokio::test]
async fn a_pass_counts_what_it_closed_how_late_and_what_it_could_not() {
    let shop = Shop::new("rule_counted").await;
    let poison = "create function refuse() returns trigger language plpgsql as $$ begin \
        if new.id = 3 then raise exception 'no'; end if; return new; end $$; \
        create trigger refuse before update on orders for each row execute function refuse()";
    shop.db.batch_execute(poison).await.unwrap();
    shop.orders(1..=9, "pending", LONG_AGO).await;
    let running = shop.sweep();
    shop.wait_pass().await;
    let read = |of: &str| value(&running.metrics.render().unwrap(), &format!("duebox_rule_{of}"));
    let labels = "rule=\"unpaid\",by=\"sweep\"";
    wait_until(secs(5), async || read("last_pass_timestamp_seconds{rule=\"unpaid\"}").is_some()).await;
    assert_eq!(read(&format!("closed_total{{{labels}}}")), Some(8.0));
    assert_eq!(read(&format!("refused_total{{{labels},reason=\"error\"}}")), Some(1.0));
    // 2,000 s after due, 30 minutes of which it had.
    let late = read(&format!("lateness_seconds_sum{{{labels}}}")).unwrap() / 8.0;
    assert!((200.0..300.0).contains(&late), "{late}");
    // Another relay that finds the pass done knows when that was.
    let ended: f64 = {
        let at = "select extract(epoch from at)::float8 from duebox.state where name = 'sweep.unpaid'";
        shop.db.query_one(at, &[]).await.unwrap().get(0)
    };
    let other = shop.sweep();
    let read = |of: &str| value(&other.metrics.render().unwrap(), &format!("duebox_rule_{of}"));
    wait_until(secs(10), async || read("last_pass_timestamp_seconds{rule=\"unpaid\"}") == Some(ended)).await;
    other.stop().await;
    running.stop().await;
}
