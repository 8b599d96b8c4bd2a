//! Making a connection.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use crate::fault::Fault;
use crate::Reason;

use super::target::fault;

/// Why a connection could not be made: what it means, and the driver's own words.
#[derive(Clone, Debug)]
pub(super) struct DialError {
    pub(super) fault: Fault,
    pub(super) words: String,
}

impl DialError {
    pub(super) fn away(reason: Reason, words: &str) -> Self {
        Self {
            fault: Fault::Away(reason),
            words: words.to_string(),
        }
    }
}

impl From<redis::RedisError> for DialError {
    fn from(error: redis::RedisError) -> Self {
        Self {
            fault: fault(&error),
            words: error.to_string(),
        }
    }
}

pub(super) enum Dialer {
    /// One server.
    One(Client),
    /// The primary that sentinels name.
    #[cfg(feature = "sentinel")]
    Sentinel(Sentinels),
}

impl Dialer {
    pub(super) async fn dial(&self) -> Result<MultiplexedConnection, DialError> {
        match self {
            Self::One(client) => connect(client).await,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => connect(&sentinels.primary().await?).await,
        }
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, DialError> {
    // One deadline rules over all of it, and it is ours.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    Ok(connection.await?)
}

#[cfg(feature = "sentinel")]
pub(super) use sentinels::Sentinels;

#[cfg(feature = "sentinel")]
mod sentinels {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
    use redis::{Client, ConnectionInfo};
    use tokio::time::timeout;

    use crate::fault::Fault;
    use crate::Reason;

    use super::DialError;

    pub(in crate::link) struct Sentinels {
        pub(in crate::link) addresses: Vec<ConnectionInfo>,
        pub(in crate::link) name: String,
        pub(in crate::link) node: SentinelNodeConnectionInfo,
        /// How long one of them may take.
        pub(in crate::link) patience: Duration,
        /// The one that answered last.
        pub(in crate::link) next: AtomicUsize,
    }

    impl Sentinels {
        /// Asks one after the other, beginning with the one that answered last: one that
        /// is silent costs its part of the time only.
        pub(in crate::link) async fn primary(&self) -> Result<Client, DialError> {
            let mut last = DialError::away(Reason::NoNode, "no sentinel answers");
            let count = self.addresses.len();
            let first = self.next.load(Ordering::Relaxed);
            for at in (0..count).map(|step| first.wrapping_add(step)) {
                let Some(address) = at.checked_rem(count).and_then(|at| self.addresses.get(at))
                else {
                    continue;
                };
                let asked = timeout(self.patience, self.ask(address.clone())).await;
                match asked {
                    Ok(Ok(primary)) => {
                        self.next.store(at, Ordering::Relaxed);
                        return Ok(primary);
                    }
                    Ok(Err(error)) => {
                        last.words = error.words;
                        if matches!(error.fault, Fault::Broken(_)) {
                            last.fault = error.fault;
                        }
                    }
                    Err(_) => {}
                }
            }
            Err(last)
        }

        async fn ask(&self, address: ConnectionInfo) -> Result<Client, DialError> {
            let mut sentinel = Sentinel::build(vec![address])?;
            let primary = sentinel.async_master_for(&self.name, Some(&self.node));
            Ok(primary.await?)
        }
    }
}
