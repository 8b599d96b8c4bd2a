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
    One(Box<Client>),
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
pub(super) use sentinels::{AskSentinel, Sentinels};

#[cfg(feature = "sentinel")]
mod sentinels {
    use redis::sentinel::SentinelClientBuilder;
    use redis::{Client, RedisError};
    use tokio::task::JoinSet;

    use crate::fault::Fault;
    use crate::Reason;

    use super::DialError;

    /// How each sentinel is asked for the primary.
    pub(in crate::link) struct Sentinels(pub(in crate::link) Vec<AskSentinel>);

    pub(in crate::link) type AskSentinel =
        Box<dyn Fn() -> Result<SentinelClientBuilder, RedisError> + Send + Sync>;

    impl Sentinels {
        /// Asks all of them at once, and takes the first one's word that its primary
        /// confirms: one that is silent costs nothing.
        pub(in crate::link) async fn primary(&self) -> Result<Client, DialError> {
            let mut asked = JoinSet::new();
            for sentinel in &self.0 {
                let builder = sentinel()?;
                asked.spawn(async move {
                    let primary = builder.build()?.async_get_client().await;
                    Ok::<_, DialError>(primary?)
                });
            }
            let mut broken = None;
            let mut words = String::from("no sentinel answers");
            let mut away = false;
            while let Some(answer) = asked.join_next().await {
                match answer {
                    Ok(Ok(primary)) => return Ok(primary),
                    Ok(Err(error)) if matches!(error.fault, Fault::Broken(_)) => {
                        broken = Some(error);
                    }
                    Ok(Err(error)) => {
                        away = true;
                        words = error.words;
                    }
                    // The runtime ends.
                    Err(_) => away = true,
                }
            }
            // One that refuses must not outvote those that are merely away.
            match broken {
                Some(error) if !away => Err(error),
                _ => Err(DialError::away(Reason::NoNode, &words)),
            }
        }
    }
}
