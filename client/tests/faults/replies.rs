//! Replies that are lost, cut, or nonsense: at most one debit per call.

use std::time::Duration;

use tokenbucket_client::{Reason, Source};
use tokenbucket_testkit::{Fault, FaultProxy};

use crate::support::*;

/// Each call whose reply is lost was carried out once by the server, and never sent again.
async fn lost(fault: Fault, reason: Reason) {
    let server = with_module().start();
    let proxy = FaultProxy::to(server.port());
    // Longer than a busy machine takes for a reply that is not lost.
    let deadline = Duration::from_millis(400);
    let client = builder(proxy.port()).deadline(deadline).build().unwrap();
    let limiter = client.limiter(plenty()).named("api");
    until_redis(&limiter, &mut Tally::default()).await;
    let before = executed(&server, "tb.acquire");
    proxy.set(fault.clone());
    let mut tally = Tally::default();
    // Two failures do not open the breaker.
    for call_number in 1..=2 {
        call(&limiter, "user:42", &mut tally).await;
        let after = executed(&server, "tb.acquire");
        assert_eq!(after - before, call_number, "{fault:?}");
    }
    let local = |reason| tally.from(Source::Local(reason));
    match fault {
        // Where the driver finds its end is its own affair.
        Fault::HalfReply => assert_eq!(local(reason) + local(Reason::Corrupt), 2, "{tally:?}"),
        _ => assert_eq!(local(reason), 2, "{fault:?}: {tally:?}"),
    }
    assert_eq!(tally.allowed, 2);
    assert!(tally.slowest < SLOWEST, "{tally:?}");
    proxy.set(Fault::Forward);
    call(&limiter, "user:42", &mut tally).await;
    assert_eq!(tally.redis(), 1, "{fault:?}: {tally:?}");
}

#[test]
fn swallowed() {
    run(lost(Fault::SwallowReplies, Reason::Deadline));
}

#[test]
fn cut_after_execution() {
    run(lost(Fault::CutAfterExecution, Reason::Connection));
}

#[test]
fn half_a_reply() {
    run(lost(Fault::HalfReply, Reason::Connection));
}

#[test]
fn nonsense() {
    for nonsense in [
        // No RESP at all.
        &b"\x00\xff nonsense\r\n"[..],
        // RESP, but nothing that the module says.
        b"+OK\r\n",
        b"*4\r\n:1\r\n:1\r\n:0\r\n",
        b"*4\r\n:1\r\n:-1\r\n:0\r\n:0\r\n",
        b"*4\r\n:0\r\n:0\r\n:0\r\n:9\r\n",
        b"$-1\r\n",
    ] {
        let reason = match nonsense {
            // Its last integer never comes.
            [b'*', .., b':', b'0', b'\r', b'\n'] if nonsense.len() == 16 => Reason::Deadline,
            _ => Reason::Corrupt,
        };
        run(lost(Fault::Replace(nonsense.to_vec()), reason));
    }
}

/// A reply that comes after its call has given up is not taken for the next call's.
#[test]
fn a_late_reply_is_nobody_elses() {
    run(async {
        let server = with_module().start();
        let proxy = FaultProxy::to(server.port());
        let client = builder(proxy.port()).build().unwrap();
        let limiter = client.limiter(limit(1_000.0, 1e-9)).named("api");
        until_redis(&limiter, &mut Tally::default()).await;
        proxy.set(Fault::Delay(Duration::from_millis(120)));
        let late = limiter.acquire("late", 500).await.unwrap();
        assert_eq!(late.source(), Source::Local(Reason::Deadline));
        proxy.set(Fault::Forward);
        let mut answered = 0;
        while answered < 5 {
            let decision = limiter.acquire("other", 1).await.unwrap();
            if decision.source() == Source::Redis {
                answered += 1;
                assert!(decision.remaining() >= 980, "{decision:?}");
            }
        }
    });
}
