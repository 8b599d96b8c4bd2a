//! The wall clock of a server, in the hand of the test.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::NamedTempFile;

/// The shared library that `build.rs` makes of `fakeclock.c`.
const LIBRARY: &str = env!("TOKENBUCKET_FAKECLOCK_LIBRARY");
/// Names the control file to the library.
const VARIABLE: &str = "TOKENBUCKET_FAKECLOCK";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stands still at this microsecond since 1970.
    Held(i64),
    /// Runs, this many microseconds ahead of the true clock.
    Shifted(i64),
}

impl State {
    /// The word that `fakeclock.c` reads: value and mode in one, so that a
    /// change is one write.
    fn word(self) -> i64 {
        let (us, held) = match self {
            State::Held(us) => (us, 1),
            State::Shifted(us) => (us, 0),
        };
        us.checked_mul(2)
            .and_then(|twice| twice.checked_add(held))
            .expect("a clock within 146,000 years of 1970")
    }
}

/// The wall clock of every process started with [`HeldClock::environment`]:
/// held still at a microsecond, or running with an offset. The monotonic clocks
/// of those processes stay true.
///
/// A change is seen by the process at its next look at the clock. A server may
/// keep the time for a while: [`Server::hold`](crate::Server::hold) and its
/// sisters also wait until the server shows it.
///
/// # Panics
///
/// Every method that sets the clock panics when the control file can't be
/// written or the time is more than 146,000 years away from 1970.
#[derive(Debug)]
pub struct HeldClock {
    /// Deleted on drop; processes that have mapped it keep the last value.
    control: NamedTempFile,
    state: Mutex<State>,
}

impl HeldClock {
    /// A clock that stands still at `us` microseconds since 1970. Its control
    /// file is made in `folder`.
    ///
    /// # Errors
    ///
    /// When the file can't be made.
    pub fn create_in(folder: &Path, us: i64) -> io::Result<Self> {
        let control = tempfile::Builder::new()
            .prefix("clock-")
            .tempfile_in(folder)?;
        let state = State::Held(us);
        write(control.as_file(), state)?;
        Ok(Self {
            control,
            state: Mutex::new(state),
        })
    }

    /// The environment variables that put a process under this clock.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        let mut preload = OsString::from(LIBRARY);
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        [
            ("LD_PRELOAD", preload),
            (VARIABLE, self.control.path().as_os_str().to_owned()),
        ]
    }

    /// Makes the clock stand still at `us` microseconds since 1970.
    pub fn hold_at(&self, us: i64) {
        self.change(|_| State::Held(us));
    }

    /// Moves the clock forward by `step` (whole microseconds); whether it
    /// stands or runs stays as it is.
    pub fn advance(&self, step: Duration) {
        self.shift(micros(step));
    }

    /// Sets the clock back by `step` (whole microseconds); whether it stands or
    /// runs stays as it is.
    pub fn step_back(&self, step: Duration) {
        self.shift(-micros(step));
    }

    /// Lets the clock run, `us` microseconds ahead of the true one (behind it
    /// when negative).
    pub fn run_with_offset(&self, us: i64) {
        self.change(|_| State::Shifted(us));
    }

    /// What the clock shows now, in microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        match *self.lock() {
            State::Held(us) => us,
            State::Shifted(us) => true_now_us() + us,
        }
    }

    /// Whether the clock stands still.
    pub fn is_held(&self) -> bool {
        matches!(*self.lock(), State::Held(_))
    }

    fn shift(&self, by: i64) {
        let moved = |us: i64| us.checked_add(by).expect("the clock fits 64 bits");
        self.change(|state| match state {
            State::Held(us) => State::Held(moved(us)),
            State::Shifted(us) => State::Shifted(moved(us)),
        });
    }

    /// The lock is kept over the write: two threads that advance the clock
    /// advance it twice.
    fn change(&self, to: impl FnOnce(State) -> State) {
        let mut state = self.lock();
        let next = to(*state);
        write(self.control.as_file(), next).expect("the clock's control file can be written");
        *state = next;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is replaced whole: a thread that panicked left a good one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(control: &File, state: State) -> io::Result<()> {
    let written = control.write_at(&state.word().to_ne_bytes(), 0)?;
    // A second write for the rest would be seen as two changes.
    if written == 8 {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

fn micros(step: Duration) -> i64 {
    i64::try_from(step.as_micros()).expect("a step that fits 64 bits of microseconds")
}

fn true_now_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the true clock is past 1970");
    micros(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(us: i64) -> (tempfile::TempDir, HeldClock) {
        let folder = tempfile::tempdir().unwrap();
        let clock = HeldClock::create_in(folder.path(), us).unwrap();
        (folder, clock)
    }

    #[test]
    fn stands_moves_and_steps_back() {
        let (_folder, clock) = clock(1_000);
        assert!(clock.is_held());
        clock.advance(Duration::from_micros(5));
        assert_eq!(clock.now_us(), 1_005);
        clock.step_back(Duration::from_secs(1));
        assert_eq!(clock.now_us(), -998_995);
        clock.hold_at(7);
        assert_eq!(clock.now_us(), 7);
    }

    #[test]
    fn runs_with_an_offset() {
        let (_folder, clock) = clock(0);
        clock.run_with_offset(-3_600_000_000);
        assert!(!clock.is_held());
        let behind = true_now_us() - clock.now_us();
        assert!(
            (3_599_000_000..=3_601_000_000).contains(&behind),
            "{behind}"
        );
        clock.advance(Duration::from_secs(3_600));
        let behind = true_now_us() - clock.now_us();
        assert!((-1_000_000..=1_000_000).contains(&behind), "{behind}");
    }

    #[test]
    fn the_control_file_is_one_word() {
        let (_folder, clock) = clock(21);
        assert_eq!(
            std::fs::read(clock.control.path()).unwrap(),
            43_i64.to_ne_bytes()
        );
        clock.run_with_offset(-21);
        assert_eq!(
            std::fs::read(clock.control.path()).unwrap(),
            (-42_i64).to_ne_bytes()
        );
    }
}
