//! A failover by real sentinels.

use std::time::{Duration, Instant};

use tokenbucket_client::{Client, ErrorKind};
use tokenbucket_testkit::{Sentinels, Server};

use crate::support::*;

#[test]
fn the_primary_dies() {
    run(async {
        let mut primary = with_module().start();
        let replicas: Vec<Server> = (0..2)
            .map(|_| with_module().replica_of(&primary).start())
            .collect();
        for replica in &replicas {
            replica.wait_for_sync(&primary);
        }
        let sentinels = Sentinels::watch(&primary, 2);
        let addresses: Vec<String> = sentinels
            .ports()
            .into_iter()
            // The first one is dead.
            .scan(true, |first, port| {
                Some(if std::mem::take(first) { 1 } else { port })
            })
            .map(address)
            .collect();
        let record = Record::default();
        let client = Client::sentinel(addresses, "limits")
            .unwrap()
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        client.check().await.unwrap();

        let load = Load::start(&limiter, 20, Duration::from_millis(5));
        let old = primary.port();
        primary.kill();
        wait_until("the breaker to open", || client.is_degraded()).await;
        let new = tokio::task::spawn_blocking(move || {
            let new = sentinels.wait_for_failover(old);
            (new, sentinels)
        });
        let (new, _sentinels) = new.await.unwrap();
        let known = Instant::now();
        let new = replicas
            .iter()
            .find(|replica| replica.port() == new)
            .unwrap();
        wait_until("the new primary to be used", || {
            executed(new, "tb.acquire") > 0
        })
        .await;
        wait_until("the breaker to close", || !client.is_degraded()).await;
        let took = known.elapsed();
        let tally = load.stop().await;
        println!("the new primary is used {took:?} after all sentinels know it; {tally:?}");
        assert!(took < Duration::from_secs(2) + SLOWEST, "{took:?}");
        assert_eq!(tally.errors, 0);
        assert!(tally.slowest < SLOWEST, "{tally:?}");
        assert_eq!(record.moves().last(), Some(&Event::Recovered));
    });
}

#[test]
fn no_sentinel_and_no_such_name() {
    run(async {
        let client = Client::sentinel([address(1), address(2)], "limits")
            .unwrap()
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!((tally.local(), tally.errors), (3, 0), "{tally:?}");
        assert!(tally.slowest < SLOWEST, "{tally:?}");
        let none = Client::sentinel(Vec::<String>::new(), "limits").unwrap_err();
        assert_eq!(none.kind(), ErrorKind::Argument);
    });
}
