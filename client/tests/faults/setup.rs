//! Set-ups that are broken: an error that says what to mend, and no breaker that hides it.

use tokenbucket_client::{Client, ErrorKind, Keys, Reason, Source};
use tokenbucket_testkit::{Fault, FaultProxy, Server};

use crate::support::*;

/// F13: the call gets a typed error with the server's code, the breaker stays closed, and
/// the moment it is mended, it works.
async fn broken(client: &Client, kind: ErrorKind, code: &str, mend: impl FnOnce()) {
    let limiter = client.limiter(plenty()).named("api");
    for _ in 0..10 {
        let error = limiter.acquire("user:42", 1).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (kind, Some(code)), "{error}");
    }
    assert!(!client.is_degraded());
    let counters = client.counters();
    assert_eq!((counters.errors, counters.local), (10, 0));
    mend();
    wait_until("the call to be allowed", || {
        let acquire = limiter.acquire("user:42", 1);
        let now =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(acquire));
        now.is_ok_and(|decision| decision.source() == Source::Redis)
    })
    .await;
}

fn acl(server: &Server, rule: &str) {
    let words: Vec<&str> = format!("ACL SETUSER {rule}").leak().split(' ').collect();
    let reply = server.raw().text(&words);
    assert_eq!(reply.error(), None, "{rule}");
}

fn client_of(server: &Server, user: &str) -> Client {
    let address = format!("redis://{user}@127.0.0.1:{}/", server.port());
    let builder = Client::builder(&address).unwrap();
    builder.deadline(PATIENCE).build().unwrap()
}

#[test]
fn no_password() {
    run(async {
        let server = with_module().start();
        let mut admin = server.raw();
        admin.text(&["CONFIG", "SET", "requirepass", "secret"]);
        let client = patient(server.port()).build().unwrap();
        let error = client.check().await.unwrap_err();
        assert!(
            error.to_string().contains("address of the server"),
            "{error}"
        );
        broken(&client, ErrorKind::Setup, "NOAUTH", || {
            admin.text(&["CONFIG", "SET", "requirepass", ""]);
            // It was asked for when the connection was made.
            admin.text(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        })
        .await;
    });
}

#[test]
fn wrong_password() {
    run(async {
        let server = with_module().start();
        acl(&server, "limiter on >right ~* +@all");
        let client = client_of(&server, "limiter:wrong");
        let limiter = client.limiter(plenty());
        for _ in 0..10 {
            let error = limiter.acquire("user:42", 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup, "{error}");
        }
        // A refusal stands for a moment: not every call dials.
        assert!(client.counters().dials < 10, "{:?}", client.counters());
        assert!(!client.is_degraded());
        let client = client_of(&server, "limiter:right");
        client.check().await.unwrap();
    });
}

/// I02: the user needs the command and the keys, and nothing else.
#[test]
fn no_permission() {
    run(async {
        let server = with_module().start();
        acl(&server, "limiter on >p ~rl:* resetchannels +tb.peek");
        let address = format!("redis://limiter:p@127.0.0.1:{}/", server.port());
        let keys = Keys::default().prefix("rl:");
        let client = Client::builder(&address)
            .unwrap()
            .deadline(PATIENCE)
            .keys(keys)
            .build()
            .unwrap();
        let error = client.check().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Setup, Some("NOPERM"))
        );
        broken(&client, ErrorKind::Setup, "NOPERM", || {
            acl(&server, "limiter +tb.acquire");
        })
        .await;
        client.check().await.unwrap();
        // Without the prefix its keys are not those of the rule.
        let other = client_of(&server, "limiter:p");
        let error = other.limiter(plenty()).acquire("a", 1).await.unwrap_err();
        assert_eq!(error.code(), Some("NOPERM"));
    });
}

/// H13: a server that never had the module: somebody has to load it.
#[test]
fn no_module() {
    run(async {
        let server = Server::builder().start();
        let client = patient(server.port()).build().unwrap();
        let error = client.check().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Setup, Some("ERR"))
        );
        assert!(error.to_string().contains("loadmodule"), "{error}");
        assert!(
            error.to_string().contains(&server.port().to_string()),
            "{error}"
        );
        let limiter = client.limiter(plenty());
        for _ in 0..5 {
            assert!(limiter.acquire("user:42", 1).await.is_err());
        }
        assert!(!client.is_degraded());
    });
}

/// F14: the module has answered before, and the new primary lacks it: away, and said aloud,
/// once.
#[test]
fn lost_module() {
    run(async {
        let with = with_module().start();
        let without = Server::builder().start();
        let proxy = FaultProxy::to(with.port());
        let record = Record::default();
        let client = patient(proxy.port())
            .observer(record.clone())
            .build()
            .unwrap();
        let limiter = client.limiter(plenty()).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.retarget(without.port());
        proxy.cut_all();
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!(tally.errors, 0);
        assert!(
            tally.from(Source::Local(Reason::ModuleLost)) >= 2,
            "{tally:?}"
        );
        let load = Load::start(&limiter, 4, std::time::Duration::from_millis(5));
        wait_until("probes", || client.counters().probes >= 3).await;
        load.stop().await;
        assert_eq!(record.count(&Event::ModuleLost), 1);
        proxy.retarget(with.port());
        until_redis(&limiter, &mut Tally::default()).await;
        assert_eq!(
            record.moves().len(),
            2,
            "degraded once, recovered once: {:?}",
            record.moves()
        );
    });
}

/// D09: a key that holds something else is an error, never a yes, and stays as it is.
#[test]
fn wrong_type() {
    run(async {
        let server = with_module().start();
        let mut raw = server.raw();
        raw.text(&["LPUSH", "{user:42}:api", "x"]);
        let client = patient(server.port()).build().unwrap();
        broken(&client, ErrorKind::WrongType, "WRONGTYPE", || {
            raw.text(&["DEL", "{user:42}:api"]);
        })
        .await;
    });
}

#[test]
fn a_broken_set_up_can_count_as_away() {
    run(async {
        let server = Server::builder().start();
        let client = patient(server.port())
            .broken_setup_is_away(true)
            .build()
            .unwrap();
        let limiter = client.limiter(plenty());
        let tally = until_degraded(&client, &limiter).await;
        assert_eq!(tally.from(Source::Local(Reason::Setup)), 3, "{tally:?}");
        assert_eq!(tally.errors, 0);
    });
}

/// What the caller says wrong is an error before anything is sent.
#[test]
fn wrong_arguments() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        proxy.set(Fault::BlackHole);
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(plenty());
        for error in [
            limiter.acquire("a", -1).await.unwrap_err(),
            limiter.acquire("a", f64::NAN).await.unwrap_err(),
            limiter.acquire("a", 1e13).await.unwrap_err(),
            limiter
                .clone()
                .named("a}b")
                .acquire("a", 1)
                .await
                .unwrap_err(),
            client
                .acquire_all("a", &[(&limiter, 1), (&limiter, 1)])
                .await
                .unwrap_err(),
            client.acquire_all::<u32>("a", &[]).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        }
        assert_eq!(client.counters().dials, 0);
        for address in ["", "nonsense", "http://127.0.0.1/", "redis://"] {
            let Err(error) = Client::builder(address) else {
                // It has a host, if only an empty one.
                assert_eq!(address, "redis://");
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::Argument, "{address}: {error}");
        }
        let error = Client::builder("redis://user:s3cret@[::1").unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    });
}
