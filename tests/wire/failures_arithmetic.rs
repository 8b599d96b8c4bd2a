//! Arithmetic that failed in the field: rows A of the failure cases.

use std::thread;
use std::time::Duration;

use tokenbucket_testkit::{Random, RawClient};

use crate::support::{command, Ideal};
use crate::{expires_at_ms, held, running, stored, START};

const MICROSECOND: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_secs(86_400);

// A01: at 8000 tokens/s every call was an error, at 7000/s half of them: the time
// to live was cut to 0 ms, and a key that was gone in mid-call was no number.
#[test]
fn eight_thousand_a_second_step_by_step() {
    let server = held();
    let mut client = server.raw();
    // One token is 125 us. From 0 to 10 ms in steps of 25 us.
    for us in (0..10_000).step_by(25) {
        server.hold(START + us);
        let reply = client.ask("TB.ACQUIRE k 1 8000 1");
        if us % 125 == 0 {
            assert_eq!(reply, [1, 0, 0, 1], "{us} us");
            // Full in 125 us: the millisecond, rounded up, in which that is.
            let expiry = expires_at_ms(&mut client, "k", START + us);
            assert_eq!(expiry, START / 1_000 + (us + 125 + 999) / 1_000, "{us} us");
            assert!(
                expiry * 1_000 > START + us,
                "a time to live of 0 at {us} us"
            );
        } else {
            assert_eq!(reply, [0, 0, 1, 1], "{us} us");
        }
    }
}

// A01: the same from ten connections on the running clock, where calls and
// expiries meet in any order: no errors, and no more than has flowed in.
#[test]
fn eight_thousand_a_second_from_ten_connections() {
    let server = running();
    for rate in [7_000_u64, 8_000] {
        let call = format!("TB.ACQUIRE k{rate} 1 {rate} 1");
        let start = server.time_us();
        let allowed: u64 = thread::scope(|scope| {
            let workers: Vec<_> = (0..10)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = server.raw();
                        let mut allowed = 0;
                        for _ in 0..1_500 {
                            let [flag, remaining, retry, reset] = client.ask(&call);
                            // One token at most 143 us away.
                            match flag {
                                1 => assert_eq!([remaining, retry, reset], [0, 0, 1]),
                                _ => assert_eq!([flag, remaining, retry, reset], [0, 0, 1, 1]),
                            }
                            allowed += u64::from(flag == 1);
                        }
                        allowed
                    })
                })
                .collect();
            workers.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let elapsed = server.time_us().abs_diff(start);
        let most = 1 + rate * elapsed / 1_000_000;
        assert!(
            (1..=most).contains(&allowed),
            "{allowed} of at most {most} at {rate}/s"
        );
    }
}

// A03: rates above 1000/s were refused, because a token took less than the unit
// of time.
#[test]
fn rates_above_a_thousand() {
    let server = held();
    let mut client = server.raw();
    // The first whole microsecond in which one token has flowed in.
    for (rate, us) in [("1500", 667), ("1001", 1_000), ("2000", 500), ("999999", 2)] {
        let call = format!("TB.ACQUIRE k:{rate} 20 {rate} 1");
        server.hold(START);
        for left in (0..20).rev() {
            let [allowed, remaining, retry, _] = client.ask(&call);
            assert_eq!([allowed, remaining, retry], [1, left, 0], "{rate}");
        }
        assert_eq!(client.ask(&call)[..3], [0, 0, 1], "{rate}");
        server.hold(START + us - 1);
        assert_eq!(client.ask(&call)[..3], [0, 0, 1], "{rate}");
        server.hold(START + us);
        assert_eq!(client.ask(&call)[..3], [1, 0, 0], "{rate}");
    }
    // A thousand and a million tokens in each microsecond.
    for (rate, flow) in [("1e9", 1_000), ("1e12", 1_000_000)] {
        server.hold(START);
        let drain = format!("TB.ACQUIRE k:{rate} 3000000 {rate} 3000000");
        assert_eq!(client.ask(&drain)[..3], [1, 0, 0], "{rate}");
        server.hold(START + 1);
        let peek = format!("TB.PEEK k:{rate} 3000000 {rate} 0");
        assert_eq!(client.ask(&peek)[..3], [1, flow, 0], "{rate}");
    }
}

// A04: after hours of idleness the refill overflowed, and the bucket denied
// instead of being full.
#[test]
fn long_idleness_is_a_full_bucket() {
    let server = held();
    let mut client = server.raw();
    for numbers in [
        "1000000000 1000000000",
        "1000000000000 1000000000000",
        "1e-12 1e12",
    ] {
        let capacity = numbers.split(' ').next().unwrap();
        // With the time to live taken away, the refill itself is what has to hold.
        for persist in [false, true] {
            let key = format!("k:{capacity}:{persist}");
            let take_all = format!("TB.ACQUIRE {key} {numbers} {capacity}");
            let reset = if capacity == "1e-12" { 1 } else { 1_000 };
            assert_eq!(client.ask(&take_all), [1, 0, 0, reset]);
            for idle in [DAY / 2, DAY * 3_650] {
                assert_eq!(client.ask(&take_all)[0], 0, "{key} is drained");
                if persist {
                    assert_eq!(client.text(&["PERSIST", &key]).integer(), 1);
                }
                server.advance(idle);
                let full = client.ask(&format!("TB.PEEK {key} {numbers} 0"));
                let whole = capacity.parse().unwrap_or(0);
                assert_eq!(full, [1, whole, 0, 0], "{key} after {idle:?}");
                assert_eq!(
                    client.ask(&take_all),
                    [1, 0, 0, reset],
                    "{key} after {idle:?}"
                );
            }
            server.hold(START);
        }
    }
}

// A08: daily quotas above 25,000 were impossible: capacity and cost in units of a
// day's seconds did not fit.
#[test]
fn a_large_daily_quota() {
    let server = held();
    let mut client = server.raw();
    let call = "TB.ACQUIRE k 8640000000 100000 86400";
    assert_eq!(client.ask(call), [1, 8_639_913_600, 0, 864]);
    let rest = "TB.ACQUIRE k 8640000000 100000 8639913600";
    assert_eq!(client.ask(rest), [1, 0, 0, 86_400_000]);
    assert_eq!(client.ask(call), [0, 0, 864, 86_400_000]);
    server.advance(Duration::from_micros(863_999));
    assert_eq!(client.ask(call), [0, 86_399, 1, 86_399_137]);
    server.advance(MICROSECOND);
    assert_eq!(client.ask(call), [1, 0, 0, 86_400_000]);
}

// A10: once drained, a limit under 1000/s never refilled under load: each call
// moved the time mark and threw away less than a token.
#[test]
fn hammering_does_not_stop_the_refill() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 5 10"), [1, 0, 0, 2_000]);
    for ms in 1..=10_000 {
        server.hold(START + ms * 1_000);
        let reply = client.ask("TB.ACQUIRE k 10 5 1");
        // One token in 200 ms: 50 in 10 s.
        let want = match ms % 200 {
            0 => [1, 0, 0, 2_000],
            since => [0, 0, 200 - since, 2_000 - since],
        };
        assert_eq!(reply, want, "{ms} ms");
    }
}

// A11: a tenth of the traffic was denied at 4000/s against 5000/s: each call cut
// the refill to whole tokens and kept the whole time.
#[test]
fn traffic_below_the_rate_is_never_denied() {
    let server = held();
    let mut client = server.raw();
    let mut random = Random::new(0xa11);
    let call = command("TB.ACQUIRE k 5000 5000 1");
    let args: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
    for number in 0..120_000 {
        // 250 us apart, and up to 200 us late.
        server
            .clock()
            .hold_at(START + number * 250 + random.below(200));
        let [allowed, remaining, ..] = client.call(&args).four().unwrap();
        assert_eq!(allowed, 1, "call {number}");
        // At most what one jitter holds, and the token taken, below the brim.
        assert!(
            remaining >= 4_997,
            "{remaining} are left after call {number}"
        );
    }
}

// A13: with a slow fractional rate, who polled once a second stayed blocked for
// ever: each denial lost the fraction that had flowed in.
#[test]
fn polling_a_slow_rate_loses_no_fraction() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 5 0.1111 5")[..3], [1, 0, 0]);
    let drained = stored(&mut client, "k");
    let mut allowed_at = Vec::new();
    for second in 1..=91 {
        server.advance(Duration::from_secs(1));
        match client.ask("TB.ACQUIRE k 5 0.1111 1")[0] {
            1 => allowed_at.push(second),
            _ if allowed_at.is_empty() => assert_eq!(stored(&mut client, "k"), drained),
            _ => {}
        }
    }
    // The seconds in which 0.1111 times their number passes a whole one.
    assert_eq!(allowed_at, [10, 19, 28, 37, 46, 55, 64, 73, 82, 91]);
}

// A14: a bucket never refilled in production though its unit tests passed. Every
// answer to any mix of calls is that of exact fractions.
#[test]
fn any_mix_of_calls_is_what_fractions_say() {
    let server = held();
    let mut client = server.raw();
    let mut random = Random::new(0xa14);
    // Decimals of up to 12 places are exact, so the answers agree to the digit.
    let mut buckets: Vec<_> = [
        ("10", "3", ["0", "1", "0.037", "10", "11"]),
        ("5", "0.1111", ["0", "1", "0.01", "5", "5.000000000001"]),
        ("1", "8000", ["0", "1", "0.5", "0.999999999999", "2"]),
        (
            "2.5",
            "0.000000000001",
            ["0", "0.25", "1e-12", "2.5", "1e12"],
        ),
        (
            "1000000",
            "123.456789012345",
            ["0", "1", "12.5", "999999", "1000001"],
        ),
        ("0.5", "7.25", ["0", "0.1", "0.000001", "0.5", "0.75"]),
    ]
    .into_iter()
    .map(|(capacity, rate, costs)| {
        let ideal = Ideal::new(capacity, rate, START);
        (
            format!("TB.ACQUIRE k:{capacity} {capacity} {rate}"),
            costs,
            ideal,
        )
    })
    .collect();

    let mut now = START;
    let mut answers = [0; 3];
    while now < START + 60_000_000 {
        // From 1 us to 2 s, short ones as often as long ones.
        let longest = 1 << random.below(22);
        now += 1 + random.below(longest);
        server.hold(now);
        let mut calls = Vec::new();
        let mut wants = Vec::new();
        for (call, costs, ideal) in &mut buckets {
            let cost = costs[usize::try_from(random.below(5)).unwrap()];
            calls.push(command(&format!("{call} {cost}")));
            wants.push(ideal.acquire(cost, now));
        }
        let replies = client.pipeline(&calls).into_iter();
        for ((reply, want), call) in replies.zip(wants).zip(calls) {
            let call = call.join(&b' ').escape_ascii().to_string();
            assert_eq!(reply.four(), Ok(want), "{call} at {now}");
            answers[match want {
                [1, ..] => 0,
                [_, _, -1, _] => 1,
                _ => 2,
            }] += 1;
        }
    }
    assert!(
        answers.iter().all(|count| *count > 200),
        "a mix: {answers:?}"
    );
}

// A14: what a bucket lets through in the long run, with denials and cost-0 calls
// in between, is capacity + rate * t.
#[test]
fn the_long_run_is_capacity_and_rate() {
    let server = held();
    let mut client = server.raw();
    let limits = [
        ("10", "3", 190),
        ("5", "0.1111", 11),
        ("10", "100/m", 110),
        ("1", "1/7s", 9),
    ];
    let mut calls = Vec::new();
    for (capacity, rate, _) in limits {
        for cost in ["1", "0", "11"] {
            calls.push(command(&format!(
                "TB.ACQUIRE k:{rate} {capacity} {rate} {cost}"
            )));
        }
    }
    let mut allowed = [0; 4];
    // More than all that is there at first, so that nothing overflows later.
    for _ in 0..11 {
        count_allowed(&mut client, &calls, &mut allowed);
    }
    for step in 1..=6_000 {
        server.hold(START + step * 10_000);
        count_allowed(&mut client, &calls, &mut allowed);
    }
    for ((_, rate, want), got) in limits.into_iter().zip(allowed) {
        assert_eq!(got, want, "{rate} in 60 s");
    }
}

/// Sends three calls for each limit, the first of them with cost 1, the second
/// with cost 0 and the third above the capacity, and counts what the first got.
fn count_allowed(client: &mut RawClient, calls: &[Vec<Vec<u8>>], allowed: &mut [i64; 4]) {
    let replies: Vec<_> = client
        .pipeline(calls)
        .into_iter()
        .map(|one| one.four().unwrap())
        .collect();
    for (three, count) in replies.chunks(3).zip(allowed) {
        *count += three[0][0];
        assert_eq!(three[1][0], 1, "cost 0 is never denied without debt");
        assert_eq!(three[2][..3], [0, three[1][1], -1]);
    }
}

// A15: a call that was too large was refused and yet took the tokens that were
// left; a cost of a million locked its caller out for 115 days.
#[test]
fn a_denial_takes_nothing() {
    let server = held();
    let mut client = server.raw();
    for left in (2..10).rev() {
        let reply = client.ask("TB.ACQUIRE k 10 1 1");
        assert_eq!(reply, [1, left, 0, (10 - left) * 1_000]);
    }
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 5"), [0, 2, 3_000, 8_000]);
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 2"), [1, 0, 0, 10_000]);
    let before = stored(&mut client, "k");
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1000000"), [0, 0, -1, 10_000]);
    assert_eq!(stored(&mut client, "k"), before);
    assert_eq!(client.text(&["PTTL", "k"]).integer(), 10_000);
    server.advance(Duration::from_secs(1));
    assert_eq!(client.ask("TB.ACQUIRE k 10 1 1"), [1, 0, 0, 10_000]);
}

// A17: min and max were swapped, so that the cap did not hold; the first call
// could take more than the capacity; a refill added one token only.
#[test]
fn the_cap_holds_and_the_refill_is_whole() {
    let server = held();
    let mut client = server.raw();
    assert_eq!(client.ask("TB.ACQUIRE k 10 3 11"), [0, 10, -1, 0]);
    assert_eq!(client.text(&["EXISTS", "k"]).integer(), 0);
    assert_eq!(client.ask("TB.ACQUIRE k 10 3 10"), [1, 0, 0, 3_334]);
    server.advance(Duration::from_secs(2));
    assert_eq!(client.ask("TB.PEEK k 10 3 0"), [1, 6, 0, 1_334]);
    assert_eq!(client.ask("TB.PEEK k 10 3 6"), [1, 0, 0, 3_334]);
    assert_eq!(client.ask("TB.PEEK k 10 3 7"), [0, 6, 334, 1_334]);

    let mut random = Random::new(0xa17);
    let mut now = START;
    server.hold(now);
    let mut ideal = Ideal::new("10", "3", now);
    ideal.acquire("10", now);
    for _ in 0..3_000 {
        now += random.below(1_500_000);
        server.hold(now);
        let cost = random.below(13).to_string();
        let reply = client.ask(&format!("TB.ACQUIRE k 10 3 {cost}"));
        assert!((0..=10).contains(&reply[1]), "{reply:?}");
        assert_eq!(reply, ideal.acquire(&cost, now), "cost {cost} at {now}");
    }
}

// A18: the limit of a busy system sank over the hours, until its operator applied
// the same setting again: every call lost a little.
#[test]
fn eight_busy_hours_lose_nothing() {
    let server = held();
    let mut clients: Vec<_> = (0..50).map(|_| server.raw()).collect();
    let mut random = Random::new(0xa18);
    let mut taken = 0;
    let mut denied = 0;
    let mut now = START;
    let mut turn = 0;
    while now < START + 8 * 3_600_000_000 {
        let client = &mut clients[turn % 50];
        turn += 1;
        let costs: Vec<i64> = (0..40).map(|_| 1 + random.below(40)).collect();
        let calls: Vec<_> = costs
            .iter()
            .map(|cost| command(&format!("TB.ACQUIRE k 460 115 {cost}")))
            .collect();
        let mut left = 0;
        for (reply, cost) in client.pipeline(&calls).into_iter().zip(costs) {
            let [allowed, remaining, ..] = reply.four().unwrap();
            taken += allowed * cost;
            denied += 1 - allowed;
            left = remaining;
        }
        // All that has flowed in is either taken or still there, to the token.
        assert_eq!(
            taken + left,
            460 + 115 * (now - START) / 1_000_000,
            "at {now}"
        );
        // From 1 to 3 s: what flows in finds room.
        assert!(left < 114, "{left} are left at {now}");
        now += 1_000_000 + random.below(2_000_000);
        server.hold(now);
    }
    assert!(denied > 10_000, "busy: {denied} were denied");
}

// A20: who asked for '6000 a minute' saw 7000 in the first minute and for six
// minutes on. The bound is capacity + rate * t; a capacity of one second is strict.
#[test]
fn a_minute_holds_capacity_and_a_minute_of_rate() {
    let server = held();
    let mut client = server.raw();
    let mut calls = vec![command("TB.ACQUIRE wide 6000 100 1"); 7];
    calls.extend(vec![command("TB.ACQUIRE strict 100 100 1"); 7]);
    let mut wide = 0;
    let mut strict = 0;
    // 7000 a minute: 7 in every 60 ms.
    for step in 0..6_500 {
        server.hold(START + step * 60_000);
        let replies = client.pipeline(&calls);
        for (number, reply) in replies.into_iter().enumerate() {
            let allowed = reply.four().unwrap()[0];
            *(if number < 7 { &mut wide } else { &mut strict }) += allowed;
        }
        // 6 tokens flow in at each step. As many are let through as come, until
        // the burst is used up, and from then on as flow in: never one more.
        assert_eq!(wide, (7 * (step + 1)).min(6_000 + 6 * step), "step {step}");
        assert_eq!(strict, (7 * (step + 1)).min(100 + 6 * step), "step {step}");
        if step == 999 {
            assert_eq!([wide, strict], [7_000, 6_094], "in the first minute");
        }
    }
    // All at once and then as it flows in: twice the rate, and that is the bound.
    assert_eq!(
        client.ask("TB.ACQUIRE burst 6000 100 6000"),
        [1, 0, 0, 60_000]
    );
    server.advance(Duration::from_secs(60));
    assert_eq!(
        client.ask("TB.ACQUIRE burst 6000 100 6000"),
        [1, 0, 0, 60_000]
    );
    assert_eq!(
        client.ask("TB.ACQUIRE burst 6000 100 1"),
        [0, 0, 10, 60_000]
    );
}
