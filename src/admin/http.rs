//! HTTP on `[admin]`: `/healthz`, `/readyz`, `/metrics`, `/status`.

use super::accept::Few;
use super::fresh::Fresh;
use super::health::{Health, Part};
use super::metrics::Metrics;
use super::pauses::Paused;
use super::status;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The content type of the `OpenMetrics` text that the encoder writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the handlers read.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The health of every part.
    pub health: Arc<Health>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where those that cost a query are asked for.
    pub fresh: Arc<Fresh>,
    /// Where the pauses are asked for.
    pub pauses: Arc<Fresh>,
}

impl Shown {
    /// What is paused; none: it is not known. A database that is away is not asked.
    async fn pauses(&self) -> Option<Vec<Paused>> {
        // Nor is it at the stop: nobody would answer.
        if !self.health.stopping() && self.health.parts().get(&Part::Postgres) == Some(&None) {
            self.pauses.ask().await;
        }
        self.health.pauses()
    }
}

/// Serves until it is dropped.
///
/// # Errors
/// The listener failed.
pub async fn run(listener: TcpListener, shown: Shown) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(shown);
    axum::serve(Few::new(listener), router).await
}

/// Alive: every loop makes progress. An outage is not ill health, a restart would not help.
async fn healthz(State(shown): State<Shown>) -> Response {
    match shown.health.stalled() {
        stalled if stalled.is_empty() => "ok\n".into_response(),
        stalled => (StatusCode::SERVICE_UNAVAILABLE, format!("stalled: {}\n", stalled.join(", "))).into_response(),
    }
}

/// Ready: both ends are usable; says which is not, and what is paused, which somebody wanted.
async fn readyz(State(shown): State<Shown>) -> Response {
    let problems = shown.health.problems().into_iter().map(|(part, reason)| format!("{part}: {reason}\n"));
    let pauses = shown.pauses().await.unwrap_or_default().into_iter().map(|pause| format!("{pause}\n"));
    let lines: String = problems.chain(pauses).collect();
    if shown.health.ready() {
        return format!("ready\n{lines}").into_response();
    }
    let lines = match (shown.health.stopping(), lines.is_empty()) {
        (true, _) => format!("stopping: {} in flight\n{lines}", shown.health.flight.now()),
        (false, true) => "starting\n".to_owned(),
        (false, false) => lines,
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{lines}")).into_response()
}

async fn metrics(State(shown): State<Shown>) -> Response {
    if !shown.health.stopping() {
        shown.fresh.ask().await;
    }
    match shown.metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn status(State(shown): State<Shown>) -> Response {
    let pauses = shown.pauses().await;
    axum::Json(status::daemon(&shown.health, pauses)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_stalled_loop_is_ill_health_and_an_outage_is_not() {
        let fresh = || Arc::new(Fresh::new(Duration::ZERO));
        let shown = Shown { health: Arc::default(), metrics: Arc::default(), fresh: fresh(), pauses: fresh() };
        shown.health.beat("worker 1", Duration::from_secs(60));
        shown.health.problem(&Part::RabbitMq, "connection refused");
        shown.health.problem(&Part::Postgres, "connection refused");
        assert_eq!(healthz(State(shown.clone())).await.status(), StatusCode::OK);
        assert_eq!(readyz(State(shown.clone())).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        shown.health.beat("worker 2", Duration::ZERO);
        let answer = healthz(State(shown)).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let text = axum::body::to_bytes(answer.into_body(), 1_000).await.unwrap();
        assert_eq!(text, "stalled: worker 2\n");
    }
}
