//! The servers: processes of this machine, each with its defaults but for the quota, which no run may reach.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::arguments::{Arguments, Contender};
use crate::clients::Client;
use crate::error::{Error, Result};
use crate::meter::Used;
use crate::ports;

const QUOTA_BYTES: u64 = 16 << 30;
/// So long a cluster may take until it has a leader, and a node until it has stopped.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// Where a node keeps what it has.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its directory, which the node makes.
    pub data: PathBuf,
    /// Directories for its log; if there are none, it is in `data`. etcd takes the first alone.
    pub logs: Vec<PathBuf>,
}

/// A node: how it is started, and its process while it runs.
pub struct Node {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    messages: PathBuf,
    process: Option<Child>,
    /// Where clients reach it.
    pub url: String,
}

/// The nodes of one server. They are killed when this is dropped.
pub struct Cluster {
    pub nodes: Vec<Node>,
}

/// The program of a contender, if it is there.
///
/// # Errors
/// That it is not, with what to do.
pub fn program(contender: Contender, arguments: &Arguments) -> Result<PathBuf> {
    let (program, remedy) = match contender {
        Contender::Etcd => (&arguments.etcd, "install it (`apt-get install etcd-server`), or name it with --etcd"),
        Contender::Earlier => {
            (arguments.earlier.as_ref().unwrap_or(&arguments.tantalum_server), "name it with --earlier")
        }
        Contender::Tantalum | Contender::TwoLogs => (
            &arguments.tantalum_server,
            "build it (`cargo build --release` in cluster/), or name it with --tantalum-server",
        ),
    };
    let missing = |what: String| Error::Other(format!("cannot run {}: {what}; {remedy}", program.display()));
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(program.clone()),
        Ok(output) => Err(missing(output.status.to_string())),
        Err(error) => Err(missing(error.to_string())),
    }
}

impl Node {
    fn start(&mut self) -> Result<()> {
        let file = File::options().create(true).append(true).open(&self.messages);
        let file = file.map_err(Error::file("write", &self.messages))?;
        let messages = file.try_clone().map_err(Error::file("write", &self.messages))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(file).stderr(messages);
        self.process = Some(command.spawn().map_err(Error::file("run", &self.program))?);
        Ok(())
    }

    /// Starts it again.
    ///
    /// # Errors
    /// If its program cannot be run.
    pub fn start_again(&mut self) -> Result<()> {
        self.start()
    }

    /// Stops it as an operator does, by SIGTERM.
    ///
    /// # Errors
    /// If it does not stop; it is killed then.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if let Some(id) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
            // It may have stopped by itself.
            let _ = kill_process(id, Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(process.try_wait(), Ok(None)) {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        let _ = process.kill();
        let _ = process.wait();
        Err(self.failed("stopping", "it does not stop"))
    }

    /// The number of its process, while it was not stopped.
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// An error of this node, with what it printed last.
    pub fn failed(&self, doing: &'static str, cause: impl std::fmt::Display) -> Error {
        let printed = fs::read_to_string(&self.messages).unwrap_or_default();
        let last: Vec<_> = printed.lines().rev().take(3).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        Error::Server { server: self.name.clone(), doing, cause: format!("{cause}\n{last}") }
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Cluster {
    /// Starts a cluster with a node at each place, and waits until it takes puts.
    ///
    /// # Errors
    /// If a node does not start.
    pub async fn start(contender: Contender, arguments: &Arguments, places: &[Place]) -> Result<Cluster> {
        let program = program(contender, arguments)?;
        let ports = ports::free(2 * places.len())?;
        let (clients, peers) = ports.split_at(places.len());
        let members: Vec<_> =
            peers.iter().enumerate().map(|(index, port)| format!("n{index}=http://127.0.0.1:{port}")).collect();
        let members = members.join(",");
        let mut nodes = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let (client, peer) = (clients[index], peers[index]);
            let arguments = match contender {
                Contender::Etcd => of_etcd(index, place, client, peer, &members),
                Contender::Tantalum | Contender::Earlier | Contender::TwoLogs => {
                    let members = (places.len() > 1).then_some(members.as_str());
                    of_tantalum(index, place, client, members, contender == Contender::TwoLogs)
                }
            };
            let mut messages = place.data.clone().into_os_string();
            messages.push(".messages");
            let mut node = Node {
                name: format!("{} n{index}", contender.name()),
                program: program.clone(),
                arguments,
                messages: messages.into(),
                process: None,
                url: format!("http://127.0.0.1:{client}"),
            };
            node.start()?;
            nodes.push(node);
        }
        let cluster = Cluster { nodes };
        cluster.until_ready().await?;
        Ok(cluster)
    }

    /// Waits until all nodes know the leader, and take puts.
    async fn until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for node in &self.nodes {
            let client = Client::connect(&node.url)?;
            loop {
                let answer = match client.status().await {
                    Ok(status) if status.leader != 0 => client.put(b"ready".to_vec(), Vec::new()).await,
                    Ok(_) => Err("it has no leader".to_owned()),
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(()) => break,
                    Err(error) if Instant::now() > deadline => return Err(node.failed("starting", error)),
                    Err(_) => tokio::time::sleep(POLL).await,
                }
            }
        }
        Ok(())
    }

    /// What the nodes that run have used.
    ///
    /// # Errors
    /// If one of them is gone.
    pub fn used(&self) -> Result<Used> {
        Used::of(self.nodes.iter().filter_map(Node::process))
    }

    /// The node that leads, and in which term.
    ///
    /// # Errors
    /// If none does.
    pub async fn leader(&self) -> Result<(usize, u64)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (index, node) in self.nodes.iter().enumerate() {
                if node.process.is_some()
                    && let Ok(status) = Client::connect(&node.url)?.status().await
                    && status.header.as_ref().is_some_and(|header| header.member_id == status.leader)
                {
                    return Ok((index, status.raft_term));
                }
            }
            if Instant::now() > deadline {
                return Err(Error::Other("no node leads".to_owned()));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn of_etcd(index: usize, place: &Place, client: u16, peer: u16, members: &str) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
    option("name", &format!("n{index}"));
    option("data-dir", &path(&place.data));
    option("listen-client-urls", &client);
    option("advertise-client-urls", &client);
    option("listen-peer-urls", &peer);
    option("initial-advertise-peer-urls", &peer);
    option("initial-cluster", members);
    option("quota-backend-bytes", &QUOTA_BYTES.to_string());
    option("logger", "zap");
    option("log-level", "error");
    if let Some(log) = place.logs.first() {
        option("wal-dir", &path(&log.join("wal")));
    }
    arguments
}

fn of_tantalum(index: usize, place: &Place, client: u16, members: Option<&str>, has_two_logs: bool) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned(), path(&place.data)];
    let mut option = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
    option("name", &format!("n{index}"));
    option("listen", &format!("127.0.0.1:{client}"));
    option("quota-backend-bytes", &QUOTA_BYTES.to_string());
    if let Some(members) = members {
        option("initial-cluster", members);
    }
    let logs = if has_two_logs { 2 } else { 1 };
    for log in place.logs.iter().take(logs) {
        option("raft-log-device", &path(&log.join("raft-log")));
    }
    arguments
}
