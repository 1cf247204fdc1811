//! A Redis Cluster: primaries with their slots, replicas that take over when one is killed.

use super::place::{free_port, output};
use super::redis::Redis;
use super::{Trouble, until};

/// How long a node may be silent before the others replace it.
const NODE_TIMEOUT_MS: &str = "2000";
const SLOTS: u32 = 16_384;

/// A running cluster.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts a cluster of so many primaries and replicas; the replicas are spread evenly.
    pub fn start(primaries: usize, replicas: usize) -> Result<Self, Trouble> {
        Self::with_settings(primaries, replicas, &[])
    }

    /// The same with more lines of `redis.conf` for every node.
    pub fn with_settings(
        primaries: usize,
        replicas: usize,
        settings: &[(&str, &str)],
    ) -> Result<Self, Trouble> {
        let start = || {
            let mut options = Redis::builder()
                .setting("cluster-enabled", "yes")
                .setting("cluster-config-file", "nodes.conf")
                .setting("cluster-node-timeout", NODE_TIMEOUT_MS)
                .setting("cluster-port", &free_port()?.to_string())
                .setting("repl-diskless-sync-delay", "0");
            for (name, value) in settings {
                options = options.setting(name, value);
                if *name == "requirepass" {
                    options = options.setting("masterauth", value);
                }
            }
            options.start()
        };
        let nodes = (0..primaries + replicas).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        let cluster = Self { nodes };
        let first = cluster.nodes.first().ok_or_else(|| Trouble::new("a cluster without nodes"))?;
        let mut line = first.cli_line()?;
        line.args(["--cluster", "create"]);
        line.args(cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        line.args(["--cluster-replicas", &(replicas / primaries.max(1)).to_string(), "--cluster-yes"]);
        output(&mut line)?;
        cluster.wait_until_healthy()?;
        Ok(cluster)
    }

    /// How many nodes it was started with.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// One of its nodes.
    pub fn node(&self, index: usize) -> &Redis {
        &self.nodes[index]
    }

    /// The address of every node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// The living nodes that serve slots now.
    pub fn primaries(&self) -> Result<Vec<usize>, Trouble> {
        let mut found = Vec::new();
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_alive()) {
            let nodes = node.cli(&["CLUSTER", "NODES"])?;
            let own = nodes.lines().find(|line| line.contains("myself")).unwrap_or_default();
            // Slots stand in the ninth field and after it.
            if own.contains("master") && own.split(' ').count() > 8 {
                found.push(index);
            }
        }
        Ok(found)
    }

    /// Kills one of the present primaries and says which node it was.
    pub fn kill_primary(&self, which: usize) -> Result<usize, Trouble> {
        let primaries = self.primaries()?;
        let index =
            *primaries.get(which % primaries.len().max(1)).ok_or_else(|| Trouble::new("no primary lives"))?;
        self.nodes[index].kill()?;
        Ok(index)
    }

    /// Starts a node again that was killed or stopped. If it was replaced meanwhile, it becomes a replica.
    pub fn revive(&self, index: usize) -> Result<(), Trouble> {
        self.nodes[index].start_again()
    }

    /// Returns when every living node sees all slots served, and every living replica has caught up.
    pub fn wait_until_healthy(&self) -> Result<(), Trouble> {
        until("the cluster is healthy", || {
            for node in self.nodes.iter().filter(|node| node.is_alive()) {
                if !self.is_content(node)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Returns when the replicas of every living primary have confirmed what that one has written by now.
    pub fn wait_until_copied(&self) -> Result<(), Trouble> {
        let living = || self.nodes.iter().filter(|node| node.is_alive());
        let mut written = Vec::new();
        for node in living() {
            written.push(offsets(&node.cli(&["INFO", "replication"])?).0);
        }
        until("the replicas have copied all", || {
            for (node, written) in living().zip(&written) {
                let (_, confirmed) = offsets(&node.cli(&["INFO", "replication"])?);
                if confirmed.into_iter().any(|confirmed| confirmed < *written) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn is_content(&self, node: &Redis) -> Result<bool, Trouble> {
        match self.looks_content(node) {
            // A replica that takes over all of its primary's records says nothing else meanwhile.
            Err(trouble) if trouble.to_string().contains("LOADING") => Ok(false),
            looked => looked,
        }
    }

    fn looks_content(&self, node: &Redis) -> Result<bool, Trouble> {
        let info = node.cli(&["CLUSTER", "INFO"])?;
        if !info.contains("cluster_state:ok") || !info.contains(&format!("cluster_slots_ok:{SLOTS}")) {
            return Ok(false);
        }
        let nodes = node.cli(&["CLUSTER", "NODES"])?;
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap_or_default();
        let dead = self.nodes.iter().filter(|node| !node.is_alive()).count();
        let failed =
            nodes.lines().filter(|line| line.split(' ').nth(2).is_some_and(|f| f.contains("fail"))).count();
        // A node that is suspected, or dead and not yet known to be, is about to change something.
        Ok(failed == dead && (own.contains("master") || node.has_caught_up()?))
    }
}

/// How far a server has written, and how far each of its replicas has confirmed that, as `INFO replication` says.
fn offsets(info: &str) -> (u64, Vec<u64>) {
    let number = |text: &str| text.trim_end().parse().unwrap_or(0);
    let written = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).map_or(0, number);
    let replicas = info.lines().filter(|line| line.starts_with("slave") && line.contains(",offset="));
    let confirmed = replicas.filter_map(|line| line.split(',').find_map(|part| part.strip_prefix("offset=")));
    (written, confirmed.map(number).collect())
}
