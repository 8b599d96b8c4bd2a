//! What each error of a server means for a call.

use std::time::Duration;

use crate::{Error, ErrorKind, Reason};

/// Why a call has no reply of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is away: failure mode, and the breaker counts it.
    Away(Reason),
    /// The server is there and something is wrong with the call or the set-up.
    Broken(Error),
    /// Not executed: the key is served at this address.
    Moved(String),
    /// Not executed: the key is on its way to this address.
    Ask(String),
    /// Not executed: some of the keys are on their way.
    TryAgain,
    /// The server does not know the command.
    UnknownCommand(Error),
}

/// A call that got no answer of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    pub(crate) reason: Reason,
    /// It may have been carried out.
    pub(crate) lost: bool,
    /// Until the server is asked again; above zero.
    pub(crate) pause: Duration,
}

impl Unanswered {
    pub(crate) const fn for_want_of_a_server() -> Self {
        Self {
            reason: Reason::NoServer,
            lost: false,
            pause: Duration::from_millis(1),
        }
    }
}

impl Fault {
    /// Whether the connection that it came over is of no more use: it broke, its replies
    /// are out of step, or it leads to a server that was demoted.
    pub(crate) fn spoils_connection(&self) -> bool {
        matches!(
            self,
            Self::Away(
                Reason::Connection | Reason::Corrupt | Reason::ReadOnly | Reason::MaxClients
            )
        )
    }

    /// An error reply: its first word, and the rest of it.
    pub(crate) fn of_reply(code: &str, rest: &str) -> Self {
        let away = match code {
            "LOADING" => Reason::Loading,
            "MASTERDOWN" => Reason::MasterDown,
            "CLUSTERDOWN" => Reason::ClusterDown,
            "READONLY" => Reason::ReadOnly,
            "BUSY" => Reason::Busy,
            "MISCONF" => Reason::MisConf,
            "NOREPLICAS" => Reason::NoReplicas,
            "OOM" => Reason::OutOfMemory,
            "TRYAGAIN" => return Self::TryAgain,
            "MOVED" | "ASK" => {
                // MOVED 3999 127.0.0.1:6381
                return match (rest.split(' ').nth(1), code) {
                    (Some(address), "MOVED") => Self::Moved(address.to_string()),
                    (Some(address), _) => Self::Ask(address.to_string()),
                    (None, _) => Self::Away(Reason::Corrupt),
                };
            }
            "ERR" if rest.starts_with("max number of clients") => Reason::MaxClients,
            "ERR" if rest.starts_with("Protocol error") => Reason::Corrupt,
            // The driver keeps the text of a refused SELECT and drops its code.
            "ERR" if rest.starts_with("Redis is busy") => Reason::Busy,
            "ERR" if rest.starts_with("Authentication required") => {
                return Self::Broken(broken(ErrorKind::Setup, "NOAUTH", rest));
            }
            // The module's own: a fault in it, caught.
            "ERR" if rest.starts_with("internal error") => {
                return Self::Broken(broken(ErrorKind::Setup, code, rest));
            }
            "ERR" if rest.starts_with("unknown command") => {
                let error = broken(ErrorKind::Setup, code, rest);
                return Self::UnknownCommand(error);
            }
            "ERR" => return Self::Broken(broken(ErrorKind::Argument, code, rest)),
            "WRONGTYPE" => return Self::Broken(broken(ErrorKind::WrongType, code, rest)),
            "CROSSSLOT" => return Self::Broken(broken(ErrorKind::CrossSlot, code, rest)),
            // NOAUTH, WRONGPASS, NOPERM, DENIED, and what a later server invents: whoever
            // answers and refuses has to be looked at by a person.
            _ => return Self::Broken(broken(ErrorKind::Setup, code, rest)),
        };
        Self::Away(away)
    }
}

fn broken(kind: ErrorKind, code: &str, rest: &str) -> Error {
    let hint = match code {
        "ERR" if rest.starts_with("unknown command") => {
            ": is the module loaded? loadmodule tokenbucket.so, on every node"
        }
        "NOAUTH" | "WRONGPASS" => ": user and password stand in the address of the server",
        "NOPERM" => ": the user needs the TB.* commands it calls and the keys of the limits",
        _ => "",
    };
    let error = Error::new(kind, format!("{code} {rest}{hint}"));
    #[cfg(feature = "tokio")]
    let error = error.with_code(code);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reply: &str) -> Fault {
        let (code, rest) = reply.split_once(' ').unwrap_or((reply, ""));
        Fault::of_reply(code, rest)
    }

    /// F17: every one of them is a decision of the failure mode, and none an error.
    #[test]
    fn a_server_that_is_away() {
        for (reply, reason) in [
            (
                "LOADING Redis is loading the dataset in memory",
                Reason::Loading,
            ),
            ("MASTERDOWN Link with MASTER is down", Reason::MasterDown),
            ("CLUSTERDOWN The cluster is down", Reason::ClusterDown),
            ("CLUSTERDOWN Hash slot not served", Reason::ClusterDown),
            (
                "READONLY You can't write against a read only replica.",
                Reason::ReadOnly,
            ),
            ("BUSY Redis is busy running a script.", Reason::Busy),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                Reason::MisConf,
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                Reason::NoReplicas,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Reason::OutOfMemory,
            ),
            ("ERR max number of clients reached", Reason::MaxClients),
            ("ERR Protocol error: invalid bulk length", Reason::Corrupt),
            ("ERR Redis is busy running a script.", Reason::Busy),
            ("MOVED", Reason::Corrupt),
        ] {
            assert_eq!(of(reply), Fault::Away(reason), "{reply}");
        }
    }

    #[test]
    fn a_call_that_was_not_executed() {
        assert_eq!(
            of("MOVED 3999 127.0.0.1:6381"),
            Fault::Moved("127.0.0.1:6381".into())
        );
        assert_eq!(of("ASK 3999 [::1]:6381"), Fault::Ask("[::1]:6381".into()));
        assert_eq!(
            of("TRYAGAIN Multiple keys request during rehashing"),
            Fault::TryAgain
        );
    }

    /// F13: every one of them is a typed error.
    #[test]
    fn a_broken_set_up() {
        for (reply, kind) in [
            ("NOAUTH Authentication required.", ErrorKind::Setup),
            ("WRONGPASS invalid username-password pair", ErrorKind::Setup),
            (
                "NOPERM this user has no permissions to run",
                ErrorKind::Setup,
            ),
            (
                "DENIED Redis is running in protected mode",
                ErrorKind::Setup,
            ),
            ("SOMETHING new", ErrorKind::Setup),
            ("WRONGTYPE the key holds a value", ErrorKind::WrongType),
            ("CROSSSLOT Keys in request don't hash", ErrorKind::CrossSlot),
            ("ERR rate must be above 0", ErrorKind::Argument),
        ] {
            let Fault::Broken(error) = of(reply) else {
                panic!("{reply}");
            };
            assert_eq!(error.kind(), kind, "{reply}");
            assert!(error.to_string().starts_with(reply), "{error}");
        }
        let unknown = of("ERR unknown command 'TB.ACQUIRE', with args beginning with: 'k'");
        let Fault::UnknownCommand(error) = unknown else {
            panic!("{unknown:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(error.to_string().contains("loadmodule"), "{error}");
    }
}
