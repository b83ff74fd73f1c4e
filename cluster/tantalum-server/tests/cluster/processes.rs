//! Clusters of the program itself: each member a process, behind a proxy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tantalum_loop_disk::LoopDisk;
use tantalum_server::ClusterConfig;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

use crate::common::{Client, free_port, until};
use crate::proxy::Net;

/// The disks of a member, where the tests may make some.
pub struct Disks {
    /// What it has, with one of the two devices of raft's log.
    pub data: LoopDisk,
    /// The other device of raft's log.
    pub log: LoopDisk,
}

/// More than a member of these tests ever has.
const DATA_BYTES: u64 = 512 << 20;
/// A device of raft's log, and the file system about it.
const LOG_BYTES: u64 = 32 << 20;

/// Three members, whose names are their numbers.
pub struct Processes {
    pub net: Net,
    /// The ports at which each serves clients, and members.
    ports: Vec<(u16, u16)>,
    running: BTreeMap<usize, Child>,
    cluster_file: PathBuf,
    disks: Vec<Disks>,
    /// libfaketime, with which a member has the wall clock that a file says.
    faketime: Option<PathBuf>,
    // Last, since the disks are in it.
    pub directory: TempDir,
}

impl Processes {
    pub async fn start() -> Processes {
        Processes::start_with(Vec::new(), None, tempfile::tempdir().expect("a directory")).await
    }

    /// Also with disks and clocks of each member's own, as far as the system lets the tests make them.
    pub async fn start_with_disks_and_clocks() -> Processes {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let disks = (0..3).map(|number| {
            let disk = |name: &str, bytes| LoopDisk::new(&path.join(format!("{name}.image")), path.join(name), bytes);
            Ok(Disks {
                data: disk(&format!("data{number}"), DATA_BYTES)?,
                log: disk(&format!("log{number}"), LOG_BYTES)?,
            })
        });
        let disks = disks.collect::<std::io::Result<Vec<_>>>().unwrap_or_else(|error| {
            println!("skipped: faults of disks, which need root and loop devices: {error}");
            Vec::new()
        });
        let libraries = ["/usr/lib", "/usr/lib64"].map(|under| {
            let found = Command::new("find").args([under, "-name", "libfaketime.so.1"]).output();
            found.map(|found| String::from_utf8_lossy(&found.stdout).lines().next().map(PathBuf::from)).ok().flatten()
        });
        let faketime = libraries.into_iter().flatten().next();
        if faketime.is_none() {
            println!("skipped: clocks that are set, which need libfaketime: install faketime");
        }
        Processes::start_with(disks, faketime, directory).await
    }

    async fn start_with(disks: Vec<Disks>, faketime: Option<PathBuf>, directory: TempDir) -> Processes {
        let cluster_file = directory.path().join("cluster.toml");
        let (net, mut ports, mut members) = (Net::new(), Vec::new(), String::from("[members]\n"));
        for number in 0..3 {
            let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let (clients, peers) = (free_port(), free_port());
            members.push_str(&format!("{number} = \"http://{}\"\n", proxy.local_addr().expect("it listens")));
            net.serve(proxy, number, peers);
            ports.push((clients, peers));
        }
        ClusterConfig::from_toml(&members).expect("it is one");
        std::fs::write(&cluster_file, members).expect("it is written");
        let mut processes =
            Processes { net, ports, running: BTreeMap::new(), cluster_file, disks, faketime, directory };
        for number in 0..3 {
            processes.set_clock(number, 0);
        }
        (0..3).for_each(|number| processes.run(number));
        processes.until_all_serve().await;
        processes
    }

    /// Starts a member.
    pub fn run(&mut self, number: usize) {
        let (clients, peers) = self.ports[number];
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join(format!("{number}.log")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum-server"));
        command.arg("serve");
        if let Some(library) = &self.faketime {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.clock(number));
            command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        let data = match self.disks.get(number) {
            Some(disks) => {
                for disk in [&disks.data, &disks.log] {
                    command.arg(format!("--raft-log-device={}", disk.path().join("raft-log").display()));
                }
                disks.data.path().join("data")
            }
            None => self.directory.path().join(number.to_string()),
        };
        let child = command
            .arg(data)
            .arg(format!("--name={number}"))
            .arg(format!("--cluster={}", self.cluster_file.display()))
            .arg(format!("--listen=127.0.0.1:{clients}"))
            .arg(format!("--listen-peer=127.0.0.1:{peers}"))
            .args(["--raft-log-bytes=4194304", "--state-log-bytes=8388608", "--buffer-pool-bytes=8388608"])
            .stdout(Stdio::null())
            .stderr(log.expect("its log is opened"))
            .spawn()
            .expect("it runs");
        self.net.runs(child.id(), number);
        self.running.insert(number, child);
    }

    /// Sends a signal to a member.
    pub fn signal(&self, number: usize, signal: &str) {
        let pid = self.running[&number].id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill is there");
        assert!(sent.success(), "kill {signal} {pid}");
    }

    /// Waits until a member has ended.
    pub async fn until_ended(&mut self, number: usize) -> std::process::ExitStatus {
        let mut child = self.running.remove(&number).expect("it ran");
        tokio::task::spawn_blocking(move || child.wait()).await.expect("no panic").expect("it can be waited for")
    }

    /// The disks of a member, if it has its own.
    pub fn disks(&self, number: usize) -> Option<&Disks> {
        self.disks.get(number)
    }

    fn clock(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("{number}.clock"))
    }

    /// Sets a member's wall clock so many seconds off. Returns whether it can be set.
    pub fn set_clock(&self, number: usize, seconds: i64) -> bool {
        // In one step: the member may read it at any time.
        let new = self.clock(number).with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).expect("it is written");
        std::fs::rename(new, self.clock(number)).expect("it is renamed");
        self.faketime.is_some()
    }

    /// Whether a member has ended by itself.
    pub fn has_ended(&mut self, number: usize) -> bool {
        self.running.get_mut(&number).expect("it ran").try_wait().expect("it is a child").is_some()
    }

    /// Starts a member again if it has ended. Returns whether it had.
    pub fn run_if_ended(&mut self, number: usize) -> bool {
        let has_ended = self.has_ended(number);
        if has_ended {
            self.run(number);
        }
        has_ended
    }

    /// Kills a member.
    pub async fn stop(&mut self, number: usize) {
        self.running.get_mut(&number).expect("it runs").kill().expect("it runs");
        self.until_ended(number).await;
    }

    /// Kills a member, and starts it again after some time.
    pub async fn kill(&mut self, number: usize, down: Duration) {
        self.stop(number).await;
        tokio::time::sleep(down).await;
        self.run(number);
    }

    pub fn endpoint(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[number].0)
    }

    /// A connection to a member, which is made when it is needed.
    pub fn channel(&self, number: usize) -> Channel {
        connect(&self.endpoint(number))
    }

    async fn until_all_serve(&self) {
        for number in 0..3 {
            let client = Client::over(self.channel(number));
            until("a member serves", || {
                let mut client = client.clone();
                let request =
                    tantalum_server::api::etcdserverpb::RangeRequest { key: b"none".to_vec(), ..Default::default() };
                async move { client.kv.range(request).await.is_ok() }
            })
            .await;
        }
    }

    /// The number of the member that leads, as one member sees it.
    pub async fn leader(&self) -> Option<usize> {
        let mut leads = None;
        for number in self.running.keys() {
            let mut client = Client::over(self.channel(*number));
            let status = client.maintenance.status(tantalum_server::api::etcdserverpb::StatusRequest {});
            let Ok(Ok(status)) = tokio::time::timeout(Duration::from_millis(200), status).await else { continue };
            let status = status.into_inner();
            if status.header.is_some_and(|header| header.member_id == status.leader) {
                leads = Some(*number);
            }
        }
        leads
    }

    pub fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{number}.log"))).unwrap_or_default()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // Also one that is stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn connect(url: &str) -> Channel {
    let endpoint = Endpoint::from_shared(url.to_owned()).expect("an address");
    endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy()
}
