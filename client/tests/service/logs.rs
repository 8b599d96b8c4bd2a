//! What an operator sees: two log lines, counters, a gauge.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokenbucket_client::Client;
use tokenbucket_testkit::{wait_for, FaultProxy};

use crate::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// F18: an outage of thousands of calls is one WARN and one INFO; the counters tell the
/// rest.
#[test]
fn an_outage_in_logs_and_metrics() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // On this thread, which is the runtime's too.
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(subscriber, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(outage());
        });
    });

    let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let of = |level: &str| lines.lines().filter(|line| line.contains(level)).count();
    assert_eq!(
        (of(" WARN "), of(" INFO "), lines.lines().count()),
        (1, 1, 2),
        "{lines}"
    );

    let mut sums: HashMap<String, f64> = HashMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(_) => 0.0,
        };
        sums.insert(format!("{}{{{}}}", key.name(), labels.join(",")), value);
    }
    let decisions = |outcome, source| {
        let name = "tokenbucket_decisions_total";
        let key = format!("{name}{{limit=api,outcome={outcome},source={source}}}");
        sums.get(&key).copied().unwrap_or_default()
    };
    assert!(decisions("allowed", "redis") >= 2.0, "{sums:?}");
    assert!(decisions("allowed", "local") >= 5_000.0, "{sums:?}");
    assert_eq!(sums["tokenbucket_degraded_targets{}"], 0.0);
    assert!(
        sums["tokenbucket_failures_total{reason=connection}"] >= 3.0,
        "{sums:?}"
    );
    assert_eq!(sums["tokenbucket_dials_total{made=yes}"], 2.0, "{sums:?}");
}

async fn outage() {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    let address = format!("redis://127.0.0.1:{}/", proxy.port());
    let client = Client::builder(&address).unwrap().build().unwrap();
    let limiter = client.limiter(limit(1e9, 1e9)).named("api");
    while client.counters().redis == 0 {
        limiter.acquire("user:42", 1).await.unwrap();
    }
    proxy.refuse();
    for _ in 0..5_003 {
        limiter.acquire("user:42", 1).await.unwrap();
    }
    assert!(client.is_degraded());
    proxy.listen_again();
    let start = std::time::Instant::now();
    while client.is_degraded() {
        assert!(start.elapsed() < PATIENCE);
        limiter.acquire("user:42", 1).await.unwrap();
        tokio::task::yield_now().await;
    }
    limiter.acquire("user:42", 1).await.unwrap();
    wait_for("one more call of the server", PATIENCE, || {
        client.counters().redis > 1
    });
}
