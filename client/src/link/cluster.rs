//! A cluster: which node serves a key.
//!
//! One target per node, each with its own breaker, so that a dead shard degrades its own
//! keys only. The map of slots is asked for when there is none, and again, in the
//! background and at most every quarter of a second, when a node says that a key has moved
//! or does not answer: a failover shows there.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use crate::breaker::{Breaker, Change};
use crate::fault::Fault;
use crate::{Error, ErrorKind, Reason};

use super::settings::Node;
use super::target::Target;
use super::Shared;

const SLOTS: usize = 16_384;
/// How the map is called in logs.
const NAME: &str = "cluster";
/// How many nodes are asked for the map at once.
const AT_ONCE: usize = 3;
/// After so long a refresh is nobody's any more.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// Microseconds between two refreshes that nobody waits for.
const REFRESH_EVERY: u64 = 250_000;

pub(super) struct Cluster {
    /// Where to begin.
    seeds: Vec<(Node, Arc<Target>)>,
    map: ArcSwap<Map>,
    connect_timeout: Duration,
    shared: Arc<Shared>,
    /// The refresh that is under way, and the instant from which on nobody waits for it any
    /// more: its runtime may never be driven again.
    refreshing: Mutex<Option<(std::time::Instant, watch::Receiver<Refreshed>)>>,
    /// The instant, in microseconds, before which no refresh is begun in the background.
    next_refresh: AtomicU64,
    /// For keys that no node is known for.
    breaker: Breaker,
    degraded_at: AtomicU64,
}

type Refreshed = Option<Result<(), Fault>>;

#[derive(Clone, Default)]
struct Map {
    nodes: HashMap<String, Arc<Target>>,
    /// The primary of each slot.
    slots: Vec<Option<Arc<Target>>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map = self.map.load();
        let nodes: Vec<&String> = map.nodes.keys().collect();
        f.debug_struct("Cluster")
            .field("nodes", &nodes)
            .finish_non_exhaustive()
    }
}

impl Map {
    fn target(&self, slot: usize) -> Option<Arc<Target>> {
        self.slots.get(slot).cloned().flatten()
    }
}

impl Cluster {
    pub(super) fn new(
        nodes: Vec<Node>,
        connect_timeout: Duration,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Self>, Error> {
        let seeds = nodes
            .into_iter()
            .map(|node| {
                let target = node.clone().target(connect_timeout, shared)?;
                Ok((node, target))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Arc::new(Self {
            seeds,
            map: ArcSwap::default(),
            connect_timeout,
            breaker: shared.breaker(),
            shared: Arc::clone(shared),
            refreshing: Mutex::default(),
            next_refresh: AtomicU64::new(0),
            degraded_at: AtomicU64::new(0),
        }))
    }

    /// The node that serves `key`, asking the cluster for its map when that is not known.
    pub(super) async fn target(
        self: &Arc<Self>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Target>, Fault> {
        let slot = slot(key);
        if let Some(target) = self.map.load().target(slot) {
            return Ok(target);
        }
        let shared = &self.shared;
        let Some(permit) = self.breaker.admit(|| shared.clock.now()) else {
            return Err(Fault::Away(Reason::BreakerOpen));
        };
        let refreshed = match timeout_at(deadline, self.refresh()).await {
            Ok(refreshed) => refreshed,
            Err(_) => Err(Fault::Away(Reason::Deadline)),
        };
        let found = refreshed.and_then(|()| {
            let target = self.map.load().target(slot);
            target.ok_or(Fault::Away(Reason::NoNode))
        });
        match &found {
            Err(Fault::Away(reason)) => {
                if shared.failed(NAME, permit, *reason) == Change::Opened {
                    let now = shared.clock.now();
                    self.degraded_at.store(now, Ordering::Relaxed);
                }
            }
            _ => {
                if permit.succeeded() == Change::Closed {
                    self.recovered();
                }
            }
        }
        found
    }

    fn recovered(&self) {
        let since = self.degraded_at.load(Ordering::Relaxed);
        let passed = self.shared.clock.now().saturating_sub(since);
        let watch = &self.shared.watch;
        watch.recovered(NAME, Duration::from_micros(passed));
    }

    /// All nodes that serve slots.
    pub(super) async fn primaries(self: &Arc<Self>) -> Result<Vec<Arc<Target>>, Fault> {
        let refreshed = tokio::time::timeout(FORGOTTEN, self.refresh()).await;
        refreshed.unwrap_or(Err(Fault::Away(Reason::Deadline)))?;
        let map = self.map.load();
        if map.nodes.is_empty() || map.slots.iter().any(Option::is_none) {
            return Err(Fault::Away(Reason::NoNode));
        }
        Ok(map.nodes.values().cloned().collect())
    }

    /// The key's slot is served at `address` now, says `from`.
    pub(super) fn moved(
        self: &Arc<Self>,
        key: &[u8],
        address: &str,
        from: &Arc<Target>,
    ) -> Result<Arc<Target>, Fault> {
        let target = self.node(address, from)?;
        let slot = slot(key);
        self.map.rcu(|map| {
            let mut map = Map::clone(map);
            if let Some(owner) = map.slots.get_mut(slot) {
                *owner = Some(Arc::clone(&target));
            }
            map
        });
        self.refresh_soon();
        Ok(target)
    }

    /// The node at `address`, as `from` writes it: without a host it is `from`'s own. From
    /// now on it is known.
    pub(super) fn node(&self, address: &str, from: &Arc<Target>) -> Result<Arc<Target>, Fault> {
        let (host, port) = address
            .rsplit_once(':')
            .ok_or(Fault::Away(Reason::Corrupt))?;
        let port = port.parse().map_err(|_| Fault::Away(Reason::Corrupt))?;
        let own = from.name().rsplit_once(':').map_or("", |(host, _)| host);
        let host = match host {
            "" | "?" => own,
            host => host,
        };
        let map = self.map.load();
        let target = self
            .target_at(&map, host.trim_matches(['[', ']']), port)
            .map_err(Fault::Broken)?;
        if !map.nodes.contains_key(target.name()) {
            self.map.rcu(|map| {
                let mut map = Map::clone(map);
                let name = target.name().to_string();
                map.nodes.insert(name, Arc::clone(&target));
                map
            });
        }
        Ok(target)
    }

    fn target_at(&self, map: &Map, host: &str, port: u16) -> Result<Arc<Target>, Error> {
        let Some((seed, _)) = self.seeds.first() else {
            return Err(Error::argument("at least one address is needed"));
        };
        let node = seed.sibling(host, port);
        let name = node.name();
        if let Some(target) = map.nodes.get(&name) {
            return Ok(Arc::clone(target));
        }
        if let Some((_, target)) = self.seeds.iter().find(|(_, seed)| seed.name() == name) {
            return Ok(Arc::clone(target));
        }
        node.target(self.connect_timeout, &self.shared)
    }

    /// The time until the cluster is asked for its map again, at least 1 ms.
    pub(super) fn pause_left(&self, now: u64) -> Duration {
        self.breaker.pause_left(now)
    }

    /// Asks for the map in the background, unless that was done a moment ago.
    pub(super) fn refresh_soon(self: &Arc<Self>) {
        let now = self.shared.clock.now();
        let next = self.next_refresh.load(Ordering::Relaxed);
        let later = now.saturating_add(REFRESH_EVERY);
        // Whoever moves the mark does it.
        let mine = now >= next
            && self
                .next_refresh
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            // Without a runtime nothing was asked, either.
            let _ = self.begin_refresh();
        }
    }

    async fn refresh(self: &Arc<Self>) -> Result<(), Fault> {
        let mut refreshed = self.begin_refresh()?;
        let result = match refreshed.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        result.unwrap_or(Err(Fault::Away(Reason::Connection)))
    }

    /// Joins the refresh that is under way, or begins one.
    fn begin_refresh(self: &Arc<Self>) -> Result<watch::Receiver<Refreshed>, Fault> {
        let mut refreshing = self
            .refreshing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = std::time::Instant::now();
        if let Some((until, refreshed)) = &*refreshing {
            // Nobody sends any more when its runtime has ended.
            let alive = refreshed.has_changed().is_ok() && refreshed.borrow().is_none();
            if alive && now < *until {
                return Ok(refreshed.clone());
            }
        }
        let Ok(runtime) = Handle::try_current() else {
            return Err(Fault::Broken(Error::new(
                ErrorKind::Setup,
                "this client must be called within a tokio runtime",
            )));
        };
        let (result, refreshed) = watch::channel(None);
        let until = now.checked_add(FORGOTTEN).unwrap_or(now);
        *refreshing = Some((until, refreshed.clone()));
        let cluster = Arc::clone(self);
        runtime.spawn(async move {
            let map = cluster.ask_for_map().await;
            result.send_replace(Some(map));
        });
        Ok(refreshed)
    }

    /// Asks some nodes at once, first those that answered last time, until one knows who
    /// serves every slot; failing that, the one that knows most is believed. A node that
    /// knows nobody (it was reset, or has just begun) does not blind the client.
    async fn ask_for_map(self: &Arc<Self>) -> Result<(), Fault> {
        let map = self.map.load_full();
        let mut nodes: Vec<Arc<Target>> = map.nodes.values().cloned().collect();
        nodes.extend(self.seeds.iter().map(|(_, target)| Arc::clone(target)));
        nodes.sort_by_key(|node| !node.breaker.is_closed());
        let mut best: Option<(usize, Map)> = None;
        let mut last = Fault::Away(Reason::NoNode);
        let mut waiting = nodes.into_iter();
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < AT_ONCE {
                let Some(node) = waiting.next() else {
                    break;
                };
                asked.spawn(async move {
                    let mut command = redis::cmd("CLUSTER");
                    command.arg("SLOTS");
                    (node.query(&command).await, node)
                });
            }
            let Some(answer) = asked.join_next().await else {
                break;
            };
            match answer {
                Ok((Ok(slots), node)) => {
                    let Some(read) = self.read(&map, &slots, &node) else {
                        last = Fault::Away(Reason::Corrupt);
                        continue;
                    };
                    let served = read.slots.iter().flatten().count();
                    if best.as_ref().is_none_or(|(most, _)| served > *most) {
                        best = Some((served, read));
                    }
                    if served == SLOTS {
                        break;
                    }
                }
                Ok((Err(Fault::Broken(error)), _)) if error.kind() == ErrorKind::Argument => {
                    // ERR This instance has cluster support disabled
                    last = Fault::Broken(Error::new(
                        ErrorKind::Setup,
                        format!("{error}: build the client with Client::builder"),
                    ));
                }
                Ok((Err(fault), _)) => last = fault,
                // The runtime ends.
                Err(_) => {}
            }
        }
        match best {
            Some((1.., read)) => {
                self.adopt(&map, read);
                Ok(())
            }
            Some((0, _)) => Err(Fault::Away(Reason::NoNode)),
            None => Err(last),
        }
    }

    /// Goes by `map` from now on. Nodes that serve nothing in it are not asked any more, so
    /// nothing would close their breakers.
    fn adopt(&self, old: &Map, map: Map) {
        let nodes = old.nodes.values();
        let seeds = self.seeds.iter().map(|(_, target)| target);
        let gone: Vec<Arc<Target>> = nodes
            .chain(seeds)
            .filter(|node| !map.nodes.contains_key(node.name()))
            .cloned()
            .collect();
        self.map.store(Arc::new(map));
        for node in gone {
            node.retire();
        }
        if self.breaker.reset() == Change::Closed {
            self.recovered();
        }
    }

    /// The reply to CLUSTER SLOTS: first slot, last slot, primary, replicas; each node is
    /// host, port, and more.
    fn read(&self, old: &Map, reply: &Value, from: &Arc<Target>) -> Option<Map> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let own = self
            .seeds
            .iter()
            .find(|(_, seed)| Arc::ptr_eq(seed, from))
            .map(|(node, _)| node.host().to_string())
            .or_else(|| {
                let host = from.name().rsplit_once(':')?.0;
                Some(host.trim_matches(['[', ']']).to_string())
            })?;
        let mut map = Map {
            nodes: HashMap::new(),
            slots: vec![None; SLOTS],
        };
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice()
            else {
                return None;
            };
            let [host, Value::Int(port), ..] = primary.as_slice() else {
                return None;
            };
            let host = match host {
                Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
                Value::SimpleString(host) => host.clone(),
                _ => String::new(),
            };
            // A node that does not know how it is called by others.
            let host = match host.as_str() {
                "" | "?" => own.as_str(),
                host => host,
            };
            let port = u16::try_from(*port).ok()?;
            let target = self.target_at(&map, host, port).ok().map(|target| {
                match old.nodes.get(target.name()) {
                    // Its breaker and its connection go on.
                    Some(known) => Arc::clone(known),
                    None => target,
                }
            })?;
            map.nodes
                .insert(target.name().to_string(), Arc::clone(&target));
            let first = usize::try_from(*first).ok()?;
            let last = usize::try_from(*last).ok()?;
            for owner in map.slots.get_mut(first..=last)? {
                *owner = Some(Arc::clone(&target));
            }
        }
        Some(map)
    }
}

/// The slot of a key: CRC16 (XMODEM) of what stands in the first braces, if there is
/// anything, or of the whole key, modulo 16384. From the cluster specification.
fn slot(key: &[u8]) -> usize {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = key.get(open.checked_add(1)?..)?;
        let length = inside.iter().position(|&byte| byte == b'}')?;
        inside.get(..length).filter(|tag| !tag.is_empty())
    });
    let mut crc = 0_u16;
    for &byte in tag.unwrap_or(key) {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    usize::from(crc) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // The check value of CRC16/XMODEM, and CLUSTER KEYSLOT of a server.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"bar"), 5_061);
        assert_eq!(slot(b"{foo}:api"), slot(b"foo"));
        assert_eq!(slot(b"x{foo}{bar}"), slot(b"foo"));
        assert_ne!(slot(b"{}foo"), slot(b"foo"));
        assert_eq!(slot(b""), 0);
    }
}
