//! A cluster of real servers.

use std::time::Duration;

use crate::{wait_for, RawClient, Reply, Server, ServerBuilder};

/// How long the nodes may take to agree.
const AGREEMENT: Duration = Duration::from_secs(60);
/// How long a node may be silent before the others give it up.
const NODE_TIMEOUT_MS: &str = "2000";
const SLOTS: u16 = 16_384;

/// Primaries that share the slots evenly, each with one replica. All are killed on
/// drop.
///
/// Nodes are numbered: the primaries first, then their replicas in the same order.
/// They keep their numbers when they change their roles.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// Starts `primaries` primaries and as many replicas of what `builder` gives, and
    /// waits until all agree that all slots are served and the replicas are in step.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute.
    #[track_caller]
    pub fn start(builder: &ServerBuilder, primaries: usize) -> Self {
        let nodes: Vec<Server> = (0..2 * primaries)
            .map(|_| {
                builder
                    .clone()
                    .config("cluster-enabled", "yes")
                    .config("cluster-node-timeout", NODE_TIMEOUT_MS)
                    // However old its data: there is no other replica.
                    .config("cluster-replica-validity-factor", "0")
                    .config("repl-diskless-sync-delay", "0")
                    .start()
            })
            .collect();
        let ids = nodes
            .iter()
            .map(|node| text(node, "CLUSTER MYID"))
            .collect();
        let cluster = Self { nodes, ids };
        cluster.share_slots(primaries);
        cluster.introduce();
        cluster.add_replicas(primaries);
        cluster.wait_until_agreed();
        cluster
    }

    fn share_slots(&self, primaries: usize) {
        let count = usize::from(SLOTS);
        for (at, node) in self.nodes[..primaries].iter().enumerate() {
            let own: Vec<String> = (at * count / primaries..(at + 1) * count / primaries)
                .map(|slot| slot.to_string())
                .collect();
            // All at once would be more words than some servers take in one call.
            for some in own.chunks(1_000) {
                ok(node, &format!("CLUSTER ADDSLOTS {}", some.join(" ")));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            ok(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
        }
    }

    fn introduce(&self) {
        for other in &self.nodes[1..] {
            ok(
                &self.nodes[0],
                &format!("CLUSTER MEET 127.0.0.1 {}", other.port()),
            );
        }
        wait_for("the nodes to know each other", AGREEMENT, || {
            self.nodes.iter().all(|node| {
                let known = text(node, "CLUSTER NODES");
                self.ids.iter().all(|id| known.contains(id.as_str()))
                    && !known.contains("handshake")
            })
        });
    }

    fn add_replicas(&self, primaries: usize) {
        for at in 0..primaries {
            let call = format!("CLUSTER REPLICATE {}", self.ids[at]);
            ok(&self.nodes[primaries + at], &call);
        }
    }

    /// Waits until every node that runs says that all slots are served by nodes that
    /// run, and every replica of a primary that runs is in step.
    ///
    /// # Panics
    ///
    /// When that takes more than a minute.
    #[track_caller]
    pub fn wait_until_agreed(&self) {
        let mut why = String::new();
        let agreed = crate::try_wait_for(AGREEMENT, || {
            why = self.disagreement();
            why.is_empty()
        });
        assert!(agreed, "the cluster does not agree: {why}");
    }

    fn disagreement(&self) -> String {
        let running: Vec<&Server> = self.nodes.iter().filter(|node| node.is_running()).collect();
        let mut primaries = None;
        for node in running {
            let state = text(node, "CLUSTER INFO");
            if !state.contains("cluster_state:ok") || !state.contains("cluster_slots_ok:16384") {
                return format!("{}: {state}", node.port());
            }
            let owners = owners(node);
            if primaries.as_ref().is_some_and(|known| *known != owners) {
                return format!("{} knows other owners", node.port());
            }
            primaries = Some(owners);
            let info = node.info("replication");
            if info["role"] == "slave" && info["master_link_status"] != "up" {
                return format!("{} is not in step", node.port());
            }
        }
        String::new()
    }

    /// The node with this number.
    pub fn node(&self, number: usize) -> &Server {
        &self.nodes[number]
    }

    /// The node with this number, to be killed or started again.
    pub fn node_mut(&mut self, number: usize) -> &mut Server {
        &mut self.nodes[number]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The number of the node at this port.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[track_caller]
    pub fn number_of(&self, port: u16) -> usize {
        let found = self.nodes.iter().position(|node| node.port() == port);
        found.unwrap_or_else(|| panic!("no node listens at {port}"))
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// When no node runs.
    #[track_caller]
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        let mut client = self.any().raw();
        let slot = client.call(&[b"CLUSTER", b"KEYSLOT", key]).integer();
        u16::try_from(slot).expect("a slot")
    }

    /// The number of the primary that serves a key.
    ///
    /// # Panics
    ///
    /// When nobody serves it.
    #[track_caller]
    pub fn owner_of(&self, key: &[u8]) -> usize {
        let slot = self.slot_of(key);
        let owners = owners(self.any());
        let port = owners
            .iter()
            .find_map(|(from, to, port)| (*from..=*to).contains(&slot).then_some(*port));
        self.number_of(port.unwrap_or_else(|| panic!("nobody serves slot {slot}")))
    }

    /// Begins to move a slot: from now on its owner sends callers of keys that it does
    /// not have to the other one.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (&self.ids[from], &self.ids[to]);
        ok(
            &self.nodes[to],
            &format!("CLUSTER SETSLOT {slot} IMPORTING {source}"),
        );
        ok(
            &self.nodes[from],
            &format!("CLUSTER SETSLOT {slot} MIGRATING {target}"),
        );
    }

    /// Moves one key of a slot that is being moved.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn move_key(&self, key: &[u8], from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let call: [&[u8]; 6] = [
            b"MIGRATE",
            b"127.0.0.1",
            port.as_bytes(),
            key,
            b"0",
            b"10000",
        ];
        let reply = self.nodes[from].raw().call(&call);
        assert_eq!(reply.error(), None, "MIGRATE");
    }

    /// Moves the keys that are left in a slot, and ends its move.
    ///
    /// # Panics
    ///
    /// When a node refuses.
    #[track_caller]
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let mut source = self.nodes[from].raw();
        loop {
            let slot = slot.to_string();
            let keys = source.text(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            let Reply::Array(Some(keys)) = keys else {
                panic!("no keys of a slot: {keys:?}")
            };
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.move_key(&key.bytes().expect("a key"), from, to);
            }
        }
        let call = format!("CLUSTER SETSLOT {slot} NODE {}", self.ids[to]);
        for number in [to, from] {
            ok(&self.nodes[number], &call);
        }
        self.wait_until_agreed();
    }

    fn any(&self) -> &Server {
        let running = self.nodes.iter().find(|node| node.is_running());
        running.expect("a node that runs")
    }
}

/// First and last slot of each range, and the port of its primary, as a node knows
/// them.
fn owners(node: &Server) -> Vec<(u16, u16, u16)> {
    let mut owners = Vec::new();
    for line in text(node, "CLUSTER NODES").lines() {
        // id address flags primary ping pong epoch link slot ...
        let words: Vec<&str> = line.split(' ').collect();
        if !words[2].contains("master") || words[2].contains("fail") {
            continue;
        }
        let address = words[1].split('@').next().unwrap_or_default();
        let port = address.rsplit(':').next().unwrap_or_default();
        // A slot that is being moved stands in brackets.
        for range in words[8..].iter().filter(|range| !range.starts_with('[')) {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse().expect("a number");
            owners.push((number(from), number(to), number(port)));
        }
    }
    owners.sort_unstable();
    owners
}

#[track_caller]
fn text(node: &Server, call: &str) -> String {
    let words: Vec<&str> = call.split(' ').collect();
    let bytes = node.ask(&words).bytes().expect("an answer");
    String::from_utf8(bytes).expect("a text")
}

#[track_caller]
fn ok(node: &Server, call: &str) {
    let words: Vec<&str> = call.split(' ').collect();
    let reply = node.ask(&words);
    assert_eq!(
        reply,
        Reply::Simple("OK".into()),
        "{}",
        words[..2].join(" ")
    );
}

/// A caller that knows no slots: it asks any node, and goes where it is sent.
#[derive(Debug)]
pub struct Wanderer {
    ports: Vec<u16>,
    clients: Vec<(u16, RawClient)>,
    /// How often it was sent on: with MOVED, and with ASK.
    pub sent_on: [u64; 2],
}

impl Wanderer {
    /// One that begins at a node of `cluster`.
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            ports: cluster.nodes.iter().map(Server::port).collect(),
            clients: Vec::new(),
            sent_on: [0; 2],
        }
    }

    /// Sends a call to the node at `port`, and on to where that one sends it, and
    /// gives the reply with the port that it came from. Only TRYAGAIN, CLUSTERDOWN and
    /// LOADING make it call again. `None` when a node did not answer: whether the call
    /// was carried out is not known.
    ///
    /// # Panics
    ///
    /// When nobody answers it within a minute.
    #[track_caller]
    pub fn call(&mut self, port: u16, args: &[&[u8]]) -> Option<(u16, Reply)> {
        let (mut port, mut asking) = (port, false);
        let mut answer = None;
        wait_for("an answer of the cluster", AGREEMENT, || {
            let Ok(client) = self.client(port) else {
                // It is down: try another one.
                port = self.next(port);
                return false;
            };
            let reply = if asking {
                let asked = client.try_call(&[b"ASKING"]);
                asked.and_then(|_| client.try_call(args))
            } else {
                client.try_call(args)
            };
            asking = false;
            let Ok(reply) = reply else {
                self.clients.retain(|(known, _)| *known != port);
                return true;
            };
            let words: Vec<&str> = reply.error().unwrap_or_default().split(' ').collect();
            match words[..] {
                [kind @ ("MOVED" | "ASK"), _, address] => {
                    let to = address.rsplit(':').next().unwrap_or_default();
                    port = to.parse().expect("a port");
                    asking = kind == "ASK";
                    self.sent_on[usize::from(asking)] += 1;
                    false
                }
                ["TRYAGAIN" | "CLUSTERDOWN" | "LOADING", ..] => false,
                _ => {
                    answer = Some((port, reply));
                    true
                }
            }
        });
        answer
    }

    fn client(&mut self, port: u16) -> std::io::Result<&mut RawClient> {
        let at = match self.clients.iter().position(|(known, _)| *known == port) {
            Some(at) => at,
            None => {
                self.clients.push((port, RawClient::try_connect(port)?));
                self.clients.len() - 1
            }
        };
        Ok(&mut self.clients[at].1)
    }

    fn next(&self, port: u16) -> u16 {
        let at = self.ports.iter().position(|known| *known == port);
        self.ports[at.map_or(0, |at| at + 1) % self.ports.len()]
    }
}
