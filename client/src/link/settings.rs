//! Where the servers are, and how they are reached.

use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
use redis::ConnectionAddr;
use redis::{Client, ConnectionInfo, IntoConnectionInfo};

use crate::Error;

use super::dial::Dialer;
use super::target::Target;
use super::{Route, Shared};

#[derive(Clone)]
pub(crate) struct Settings {
    place: Place,
    pub(crate) deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) broken_is_away: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
    #[cfg(feature = "sentinel")]
    pub(crate) credentials: Option<(String, String)>,
    #[cfg(feature = "sentinel")]
    pub(crate) database: i64,
}

#[derive(Clone)]
enum Place {
    One(ConnectionInfo),
    #[cfg(feature = "cluster")]
    Cluster(Vec<ConnectionInfo>),
    #[cfg(feature = "sentinel")]
    Sentinel {
        addresses: Vec<ConnectionInfo>,
        name: String,
    },
}

/// In PEM.
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) root: Option<Vec<u8>>,
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

const DEADLINE: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

impl Settings {
    fn at(place: Place) -> Self {
        Self {
            place,
            deadline: DEADLINE,
            connect_timeout: CONNECT_TIMEOUT,
            broken_is_away: false,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            #[cfg(feature = "sentinel")]
            credentials: None,
            #[cfg(feature = "sentinel")]
            database: 0,
        }
    }

    pub(crate) fn one(address: &str) -> Result<Self, Error> {
        Ok(Self::at(Place::One(parse(address)?)))
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Self, Error> {
        let addresses = parse_all(addresses)?;
        let no_tcp = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::Unix(_));
        if addresses.iter().any(no_tcp) {
            return Err(Error::argument(
                "a cluster can't be reached through a unix socket",
            ));
        }
        Ok(Self::at(Place::Cluster(addresses)))
    }

    #[cfg(feature = "sentinel")]
    pub(crate) fn sentinel<A: AsRef<str>>(
        addresses: impl IntoIterator<Item = A>,
        name: &str,
    ) -> Result<Self, Error> {
        let addresses = parse_all(addresses)?;
        let name = name.to_string();
        Ok(Self::at(Place::Sentinel { addresses, name }))
    }

    pub(super) fn route(self, shared: &Arc<Shared>) -> Result<Route, Error> {
        #[cfg(feature = "tls")]
        install_crypto();
        let connect_timeout = self.connect_timeout.max(self.deadline);
        match self.place {
            Place::One(ref info) => {
                let target = self.node(info.clone())?.target(connect_timeout, shared)?;
                Ok(Route::One(target))
            }
            #[cfg(feature = "cluster")]
            Place::Cluster(ref addresses) => {
                let nodes = addresses.iter().map(|info| self.node(info.clone()));
                let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
                let cluster = super::cluster::Cluster::new(nodes, connect_timeout, shared)?;
                Ok(Route::Cluster(cluster))
            }
            #[cfg(feature = "sentinel")]
            Place::Sentinel {
                ref addresses,
                ref name,
            } => {
                let sentinels = addresses.iter().map(|info| self.sentinel_at(info, name));
                let sentinels = sentinels.collect::<Result<Vec<_>, _>>()?;
                let dialer = Dialer::Sentinel(super::dial::Sentinels(sentinels));
                let target = Target::new(name.clone(), dialer, connect_timeout, shared);
                Ok(Route::One(target))
            }
        }
    }

    /// How the sentinel at `info` is asked for the primary that it knows as `name`, and how
    /// that is reached then: through TLS when the sentinel is.
    #[cfg(feature = "sentinel")]
    fn sentinel_at(
        &self,
        info: &ConnectionInfo,
        name: &str,
    ) -> Result<super::dial::AskSentinel, Error> {
        use redis::sentinel::{SentinelClientBuilder, SentinelServerType};

        let address = info.addr().clone();
        let sentinel = info.redis_settings().clone();
        let name = name.to_string();
        let credentials = self.credentials.clone();
        let database = self.database;
        #[cfg(feature = "tls")]
        let certificates = self.tls.certificates()?;
        let ask = move || {
            let tcp = || TcpSettings::default().set_nodelay(true);
            let mut builder =
                SentinelClientBuilder::new([address.clone()], &name, SentinelServerType::Master)?
                    .set_client_to_redis_db(database)
                    .set_client_to_redis_tcp_settings(tcp())
                    .set_client_to_sentinel_tcp_settings(tcp());
            if let Some((user, password)) = &credentials {
                builder = builder.set_client_to_redis_password(password);
                if !user.is_empty() {
                    builder = builder.set_client_to_redis_username(user);
                }
            }
            if let Some(password) = sentinel.password() {
                builder = builder.set_client_to_sentinel_password(password);
            }
            if let Some(user) = sentinel.username() {
                builder = builder.set_client_to_sentinel_username(user);
            }
            if let ConnectionAddr::TcpTls { insecure, .. } = &address {
                let mode = if *insecure {
                    redis::TlsMode::Insecure
                } else {
                    redis::TlsMode::Secure
                };
                builder = builder.set_client_to_redis_tls_mode(mode);
                #[cfg(feature = "tls")]
                if let Some(certificates) = &certificates {
                    builder = builder
                        .set_client_to_redis_certificates(certificates.clone())
                        .set_client_to_sentinel_certificates(certificates.clone());
                }
            }
            Ok(builder)
        };
        // What can't be is said when the client is built.
        let tried = ask().and_then(|builder| builder.build());
        tried.map_err(|error: redis::RedisError| Error::argument(error.to_string()))?;
        Ok(Box::new(ask))
    }

    fn node(&self, info: ConnectionInfo) -> Result<Node, Error> {
        let node = Node {
            info,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        };
        node.client()?;
        Ok(node)
    }
}

/// One server that is reached directly.
#[derive(Clone)]
pub(super) struct Node {
    info: ConnectionInfo,
    #[cfg(feature = "tls")]
    tls: Tls,
}

impl Node {
    pub(super) fn name(&self) -> String {
        self.info.addr().to_string()
    }

    /// Another node that is reached the same way.
    #[cfg(feature = "cluster")]
    pub(super) fn sibling(&self, host: &str, port: u16) -> Self {
        let host = host.to_string();
        let address = match self.info.addr().clone() {
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let mut node = self.clone();
        node.info = node.info.set_addr(address);
        node
    }

    #[cfg(feature = "cluster")]
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    pub(super) fn target(
        self,
        connect_timeout: Duration,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Target>, Error> {
        let dialer = Dialer::One(Box::new(self.client()?));
        Ok(Target::new(self.name(), dialer, connect_timeout, shared))
    }

    fn client(&self) -> Result<Client, Error> {
        let info = self.info.clone();
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.tls.certificates()? {
            return Client::build_with_tls(info, certificates)
                .map_err(|error| Error::argument(error.to_string()));
        }
        Client::open(info).map_err(|error| Error::argument(error.to_string()))
    }
}

fn parse(address: &str) -> Result<ConnectionInfo, Error> {
    let info = address.into_connection_info().map_err(|error| {
        // Not the address: a password may stand in it.
        Error::argument(format!(
            "not the address of a server, such as redis://127.0.0.1/: {error}"
        ))
    })?;
    if !info.addr().is_supported() {
        return Err(Error::argument(
            "rediss:// needs the feature `tls` of tokenbucket-client",
        ));
    }
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn parse_all<A: AsRef<str>>(
    addresses: impl IntoIterator<Item = A>,
) -> Result<Vec<ConnectionInfo>, Error> {
    let addresses = addresses
        .into_iter()
        .map(|address| parse(address.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() {
        return Err(Error::argument("at least one address is needed"));
    }
    Ok(addresses)
}

#[cfg(feature = "tls")]
impl Tls {
    /// As the driver takes them; `None` where none are given.
    fn certificates(&self) -> Result<Option<redis::TlsCertificates>, Error> {
        if self.root.is_none() && self.client.is_none() {
            return Ok(None);
        }
        // The driver takes a text without one, and then trusts nobody.
        let client = self.client.iter().map(|(certificate, _)| certificate);
        if !self
            .root
            .iter()
            .chain(client)
            .all(|pem| has_certificate(pem))
        {
            return Err(Error::argument("no certificate in the PEM text"));
        }
        let client = self.client.clone();
        Ok(Some(redis::TlsCertificates {
            client_tls: client.map(|(client_cert, client_key)| redis::ClientTlsConfig {
                client_cert,
                client_key,
            }),
            root_cert: self.root.clone(),
        }))
    }
}

#[cfg(feature = "tls")]
fn has_certificate(pem: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(BEGIN.len()).any(|window| window == BEGIN)
}

/// rustls panics where no provider, or more than one, is compiled in and none is chosen.
#[cfg(feature = "tls")]
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else was quicker: theirs it is.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
