//! Waiting for something to become true, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// How long to leave the processor to others between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Asks `ready` again and again until it says true; gives false when `deadline`
/// passes first. `ready` is asked at least once, and once more at the end, so
/// that a busy machine alone does not make it fail.
pub fn try_wait_for(deadline: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        let last = Instant::now() >= end;
        if ready() {
            return true;
        }
        if last {
            return false;
        }
        thread::sleep(PAUSE);
    }
}

/// Asks `ready` again and again until it says true.
///
/// # Panics
///
/// When `deadline` passes first; the message names `what` was waited for.
#[track_caller]
pub fn wait_for(what: &str, deadline: Duration, ready: impl FnMut() -> bool) {
    assert!(
        try_wait_for(deadline, ready),
        "waited {deadline:?} in vain for {what}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_until_it_is_true() {
        let mut asked = 0;
        wait_for("the third look", Duration::from_secs(10), || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    fn asks_even_when_there_is_no_time() {
        assert!(try_wait_for(Duration::ZERO, || true));
        assert!(!try_wait_for(Duration::ZERO, || false));
    }

    #[test]
    #[should_panic(expected = "in vain for a miracle")]
    fn names_what_did_not_come() {
        wait_for("a miracle", Duration::from_millis(2), || false);
    }
}
