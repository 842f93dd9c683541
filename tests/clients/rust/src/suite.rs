//! The tests, and how they run: a few at a time, each with a deadline, so that a broker that never answers costs one failed line and
//! not the whole run.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::env::{Env, Outcome};

const LANGUAGE: &str = "rust";
const TEST_DEADLINE: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 4;

type Body = Box<dyn FnOnce(Env) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send>;

struct Test {
    name: String,
    extension: bool,
    body: Body,
}

#[derive(Default)]
pub struct Suite {
    tests: Vec<Test>,
}

impl Suite {
    pub fn add<F, R>(&mut self, name: impl Into<String>, body: F)
    where
        F: FnOnce(Env) -> R + Send + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.push(name.into(), false, body);
    }

    /// A test that needs Pharos; stock Pulsar cannot pass it.
    pub fn add_extension<F, R>(&mut self, name: impl Into<String>, body: F)
    where
        F: FnOnce(Env) -> R + Send + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.push(name.into(), true, body);
    }

    fn push<F, R>(&mut self, name: String, extension: bool, body: F)
    where
        F: FnOnce(Env) -> R + Send + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        self.tests.push(Test {
            name,
            extension,
            body: Box::new(move |env| Box::pin(body(env))),
        });
    }

    /// Runs what the environment asks for.
    pub fn run(self) -> ExitCode {
        let only = std::env::var("PHAROS_TEST_FILTER").unwrap_or_default();
        let skip_extension = std::env::var("PHAROS_SKIP_EXTENSION").is_ok_and(|value| value == "1");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let failed = runtime.block_on(async {
            let places = Arc::new(Semaphore::new(AT_ONCE));
            let mut running = JoinSet::new();
            for test in self.tests {
                if test.name.contains(&only) && !(skip_extension && test.extension) {
                    let places = places.clone();
                    running.spawn(async move {
                        let _place = places.acquire().await;
                        run_one(test).await
                    });
                }
            }
            running
                .join_all()
                .await
                .into_iter()
                .filter(|passed| !passed)
                .count()
        });
        // What hangs is left behind.
        runtime.shutdown_background();
        if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Prints the test's line; true when it passed.
async fn run_one(test: Test) -> bool {
    let started = Instant::now();
    // A task of its own, so that a panic in the client is this test's failure.
    let task = tokio::spawn(async move {
        let env = Env::connect().await?;
        (test.body)(env).await
    });
    let reason = match tokio::time::timeout(TEST_DEADLINE, task).await {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(error))) => Some(error.to_string()),
        Ok(Err(panic)) => Some(panic.to_string()),
        Err(_) => Some(format!("not finished within {} s", TEST_DEADLINE.as_secs())),
    };
    if std::env::var_os("PHAROS_TEST_TIMES").is_some() {
        eprintln!("{}: {} ms", test.name, started.elapsed().as_millis());
    }
    match &reason {
        None => println!("ok {LANGUAGE} {}", test.name),
        Some(reason) => {
            let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            println!("not ok {LANGUAGE} {}: {line}", test.name);
        }
    }
    reason.is_none()
}
