//! What is broken, for the one who has to mend it.

use std::borrow::Cow;
use std::fmt;

use tokenbucket_core::NumberError;

/// Something is broken: never a denial, which is a [`Decision`](crate::Decision).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
    code: Option<Box<str>>,
}

/// What kind of thing is broken.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A number, a name or an address that can't be used. Nothing was sent, or the
    /// server refused it and changed nothing.
    Argument,
    /// The server is away, and the limiter's failure mode is
    /// [`FailureMode::Error`](crate::FailureMode::Error).
    Unavailable,
    /// The server answers and will not do it: password, permissions, no module. It will
    /// go on refusing until somebody mends it.
    Setup,
    /// The key holds something that is not a token bucket.
    WrongType,
    /// The keys of one call lie in different slots of the cluster.
    CrossSlot,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: None,
        }
    }

    pub(crate) fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    /// `name` is the argument, `error` what is wrong with its number.
    pub(crate) fn number(name: &str, error: NumberError) -> Self {
        let wrong = match error {
            NumberError::Zero => "must be above 0",
            NumberError::TooSmall => "must be at least 1e-12",
            NumberError::TooLarge => "must be at most 1e12",
            _ => "must be a finite number, not negative",
        };
        Self::argument(format!("{name} {wrong}"))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same error, met at `place`.
    #[cfg(feature = "tokio")]
    pub(crate) fn at(self, place: &str) -> Self {
        let message = format!("{place}: {}", self.message).into();
        Self { message, ..self }
    }

    /// The same error, with what somebody else said of it.
    #[cfg(feature = "tokio")]
    pub(crate) fn because(self, words: String) -> Self {
        let message = format!("{}: {words}", self.message).into();
        Self { message, ..self }
    }

    /// What kind of thing is broken.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The first word of the server's error reply, where there was one: `WRONGTYPE`,
    /// `NOPERM`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether the server is away and the failure mode says to answer with this error.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
