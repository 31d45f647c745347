//! The daemon's tasks: every one has a name and an owner, and none ends before the stop without ending the daemon.

use super::Ended;
use crate::stop::Stop;
use std::collections::HashMap;
use tokio::task::{Id, JoinError, JoinSet};

/// What ends a task before the stop.
pub(super) type TaskEnd = Result<(), Ended>;

/// Every task of the daemon.
#[derive(Debug)]
pub(super) struct Tasks {
    stop: Stop,
    /// Those that may have messages in flight.
    workers: JoinSet<TaskEnd>,
    /// Those that they need.
    others: JoinSet<TaskEnd>,
    /// What a panic does not say: whose it was.
    names: HashMap<Id, String>,
}

impl Tasks {
    pub(super) fn new(stop: Stop) -> Self {
        Self { stop, workers: JoinSet::new(), others: JoinSet::new(), names: HashMap::new() }
    }

    pub(super) fn spawn_worker(&mut self, name: String, work: impl Future<Output = TaskEnd> + Send + 'static) {
        let task = self.workers.spawn(owned(name.clone(), self.stop.clone(), work));
        self.names.insert(task.id(), name);
    }

    pub(super) fn spawn_other(&mut self, name: &str, work: impl Future<Output = TaskEnd> + Send + 'static) {
        let task = self.others.spawn(owned(name.to_owned(), self.stop.clone(), work));
        self.names.insert(task.id(), name.to_owned());
    }

    /// Waits for the first task to end, which none should before the stop.
    pub(super) async fn first_end(&mut self) -> Ended {
        loop {
            let ended = tokio::select! {
                Some(ended) = self.workers.join_next() => ended,
                Some(ended) = self.others.join_next() => ended,
                else => return Ended::Failed("every task has ended".to_owned()),
            };
            // It has ended because the stop is raised: the others are waited for.
            if let Err(reason) = self.end(ended) {
                return reason;
            }
        }
    }

    /// Waits for the end of all: workers first, while their connections still stand; `release` lets those go, and then
    /// the rest. Returns the first failure, for a stop in which a task died was no clean one.
    pub(super) async fn drain(&mut self, release: impl FnOnce()) -> Ended {
        let mut first = Ok(());
        while let Some(ended) = self.workers.join_next().await {
            first = first.and(self.end(ended));
        }
        release();
        while let Some(ended) = self.others.join_next().await {
            first = first.and(self.end(ended));
        }
        first.err().unwrap_or(Ended::Stopped)
    }

    fn end(&self, ended: Result<TaskEnd, JoinError>) -> TaskEnd {
        ended.unwrap_or_else(|error| {
            let name = self.names.get(&error.id()).map_or("a task", String::as_str);
            Err(Ended::Failed(format!("{name} died: {error}")))
        })
    }
}

/// A task's life; its end before the stop is a failure of the daemon.
async fn owned(name: String, stop: Stop, work: impl Future<Output = TaskEnd>) -> TaskEnd {
    match work.await {
        Ok(()) if !stop.raised() => Err(Ended::Failed(format!("{name} ended by itself"))),
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A daemon with two tasks that run until the stop, beside the one that a test adds.
    fn tasks() -> (Stop, Tasks) {
        let stop = Stop::default();
        let mut tasks = Tasks::new(stop.clone());
        for name in ["worker 1", "worker 2"] {
            let stop = stop.clone();
            tasks.spawn_worker(name.to_owned(), async move {
                stop.wait().await;
                Ok(())
            });
        }
        (stop, tasks)
    }

    async fn reason(ended: impl Future<Output = Ended>) -> String {
        match tokio::time::timeout(Duration::from_secs(5), ended).await {
            Ok(Ended::Failed(reason)) => reason,
            other => panic!("not a failure: {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_daemon_with_the_tasks_name_and_the_panics_own_words() {
        for worker in [true, false] {
            let (_stop, mut tasks) = tasks();
            let work = async { panic!("index out of bounds") };
            match worker {
                true => tasks.spawn_worker("the culprit".to_owned(), work),
                false => tasks.spawn_other("the culprit", work),
            }
            let reason = reason(tasks.first_end()).await;
            assert!(reason.starts_with("the culprit died: ") && reason.contains("index out of bounds"), "{reason}");
        }
    }

    #[tokio::test]
    async fn a_task_that_just_returns_ends_the_daemon() {
        let (_stop, mut tasks) = tasks();
        tasks.spawn_other("the listener", async { Ok(()) });
        assert_eq!(reason(tasks.first_end()).await, "the listener ended by itself");
    }

    #[tokio::test]
    async fn a_stop_lets_the_others_go_only_when_the_workers_are_through() {
        let (stop, mut tasks) = tasks();
        let (released, waiting) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn_other("the connection", async move {
            // Dropped by `release` below.
            drop(waiting.await);
            Ok(())
        });
        stop.raise();
        let ended = tasks.drain(move || drop(released)).await;
        assert!(matches!(ended, Ended::Stopped), "{ended:?}");
    }

    #[tokio::test]
    async fn a_panic_during_the_stop_is_no_clean_stop() {
        let (stop, mut tasks) = tasks();
        let seen = stop.clone();
        tasks.spawn_worker("worker 3".to_owned(), async move {
            seen.wait().await;
            panic!("while settling")
        });
        stop.raise();
        let reason = reason(tasks.drain(|| {})).await;
        assert!(reason.starts_with("worker 3 died: ") && reason.contains("while settling"), "{reason}");
    }
}
