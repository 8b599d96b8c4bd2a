//! What the client costs: over the driver while the server is there, and alone while it is
//! not. One run, side by side.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a benchmark"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use tokenbucket_client::{Client, Limit, Limiter};
use tokenbucket_testkit::{module_path, FaultProxy, Server};
use tokio::runtime::Runtime;

fn limit() -> Limit {
    Limit::per_second(1e9).unwrap().burst(1e9).unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn driver(server: &Server, runtime: &Runtime) -> redis::aio::MultiplexedConnection {
    let address = format!("redis://127.0.0.1:{}/", server.port());
    // The client's own settings of the socket: without them the driver leaves it to the
    // system to gather small writes, which on a loopback is another thing to measure.
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = redis::IntoConnectionInfo::into_connection_info(address.as_str()).unwrap();
    let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
    let connection = runtime.block_on(client.get_multiplexed_async_connection());
    connection.unwrap()
}

/// The same call as the client's, through the driver alone.
async fn direct(connection: &mut redis::aio::MultiplexedConnection) {
    let reply: Vec<i64> = redis::cmd("TB.ACQUIRE")
        .arg("{user:42}:api")
        .arg("1000000000")
        .arg("1000000000")
        .arg("1")
        .query_async(connection)
        .await
        .unwrap();
    assert_eq!(reply[0], 1);
}

async fn acquire(limiter: &Limiter) {
    assert!(limiter.acquire("user:42", 1).await.unwrap().is_allowed());
}

/// `calls` calls by `callers` at once: each makes its part one after the other.
async fn by_many<F>(callers: u64, calls: u64, call: impl Fn(u64) -> F) -> Duration
where
    F: std::future::Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(call(calls.div_ceil(callers))))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    start.elapsed()
}

fn healthy(criterion: &mut Criterion) {
    let server = Server::builder().module(module_path()).start();
    let runtime = runtime();
    let connection = driver(&server, &runtime);
    let client = Client::builder(&format!("redis://127.0.0.1:{}/", server.port()))
        .unwrap()
        .deadline(Duration::from_secs(5))
        .build()
        .unwrap();
    let limiter = client.limiter(limit()).named("api");
    runtime.block_on(acquire(&limiter));
    for callers in [1, 16, 64] {
        let mut group = criterion.benchmark_group(format!("healthy, {callers} callers"));
        group.throughput(Throughput::Elements(1));
        group.bench_function("redis-rs", |bencher| {
            bencher.iter_custom(|calls| {
                runtime.block_on(by_many(callers, calls, |calls| {
                    let mut connection = connection.clone();
                    async move {
                        for _ in 0..calls {
                            direct(&mut connection).await;
                        }
                    }
                }))
            });
        });
        group.bench_function("client", |bencher| {
            bencher.iter_custom(|calls| {
                runtime.block_on(by_many(callers, calls, |calls| {
                    let limiter = limiter.clone();
                    async move {
                        for _ in 0..calls {
                            acquire(&limiter).await;
                        }
                    }
                }))
            });
        });
        group.finish();
    }
    throughput(&runtime, &connection, &limiter);
    latencies(&runtime, &connection, &limiter);
}

/// 64 callers, both ways in turns, so that what else the machine does meets both.
fn throughput(
    runtime: &Runtime,
    connection: &redis::aio::MultiplexedConnection,
    limiter: &Limiter,
) {
    let mut ratios: Vec<f64> = (0..40)
        .map(|_| {
            let driver = runtime.block_on(by_many(64, 20_000, |calls| {
                let mut connection = connection.clone();
                async move {
                    for _ in 0..calls {
                        direct(&mut connection).await;
                    }
                }
            }));
            let client = runtime.block_on(by_many(64, 20_000, |calls| {
                let limiter = limiter.clone();
                async move {
                    for _ in 0..calls {
                        acquire(&limiter).await;
                    }
                }
            }));
            driver.as_secs_f64() / client.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "throughput, 64 callers, client / redis-rs: median of 40 rounds {:.3}, quartiles {:.3} and {:.3}",
        ratios[20], ratios[10], ratios[30]
    );
}

/// Median and 99th percentile of single calls, both ways in turns.
fn latencies(runtime: &Runtime, connection: &redis::aio::MultiplexedConnection, limiter: &Limiter) {
    let mut times = [Vec::new(), Vec::new()];
    runtime.block_on(async {
        let mut connection = connection.clone();
        for call in 0..200_000 {
            let start = Instant::now();
            if call % 2 == 0 {
                direct(&mut connection).await;
            } else {
                acquire(limiter).await;
            }
            times[call % 2].push(start.elapsed());
        }
    });
    let mut shown = Vec::new();
    for (name, times) in ["redis-rs", "client"].into_iter().zip(&mut times) {
        times.sort_unstable();
        let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("latency, one caller, {name}: median {median:?}, p99 {p99:?}");
        shown.push((median, p99));
    }
    let ratio = |a: Duration, b: Duration| b.as_secs_f64() / a.as_secs_f64();
    println!(
        "latency, client / redis-rs: median {:.3}, p99 {:.3}",
        ratio(shown[0].0, shown[1].0),
        ratio(shown[0].1, shown[1].1)
    );
}

/// A client whose server is refused, with its breaker open for as long as the benchmark
/// takes.
fn away(runtime: &Runtime) -> (Client, Limiter) {
    let server = Server::builder().start();
    let proxy = FaultProxy::to(server.port());
    proxy.refuse();
    let pause = Duration::from_secs(3_600);
    let breaker = tokenbucket_client::BreakerSettings::default()
        .first_pause(pause)
        .longest_pause(pause);
    let client = Client::builder(&format!("redis://127.0.0.1:{}/", proxy.port()))
        .unwrap()
        .breaker(breaker)
        .build()
        .unwrap();
    let limiter = client.limiter(limit()).named("api");
    runtime.block_on(async {
        while !client.is_degraded() {
            limiter.acquire("user:42", 1).await.unwrap();
        }
    });
    (client, limiter)
}

fn local(criterion: &mut Criterion) {
    let runtime = runtime();
    let (_client, limiter) = away(&runtime);
    let mut group = criterion.benchmark_group("breaker open");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one key, one thread", |bencher| {
        bencher.iter_custom(|calls| {
            let limiter = limiter.clone();
            let task = runtime.spawn(async move {
                let start = Instant::now();
                for _ in 0..calls {
                    black_box(limiter.acquire("user:42", 1).await.unwrap());
                }
                start.elapsed()
            });
            runtime.block_on(task).unwrap()
        });
    });
    for (name, keys) in [("65,536 keys", 1 << 16), ("10,000,000 keys", 10_000_000)] {
        group.bench_function(format!("{name}, two threads"), |bencher| {
            bencher.iter_custom(|calls| {
                let tasks: Vec<_> = (0..2)
                    .map(|thread| {
                        let limiter = limiter.clone();
                        runtime.spawn(async move {
                            let mut key: u64 = thread * 7_919;
                            for _ in 0..calls.div_ceil(2) {
                                key = (key + 104_729) % keys;
                                let decision = limiter.acquire(key.to_le_bytes(), 1).await;
                                black_box(decision.unwrap());
                            }
                        })
                    })
                    .collect();
                let start = Instant::now();
                runtime.block_on(async {
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = healthy, local
}
criterion_main!(benches);
