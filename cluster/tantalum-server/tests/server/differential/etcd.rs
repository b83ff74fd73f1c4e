//! etcd itself, where it is installed (`apt-get install etcd-server`).

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Client;

/// The variable that names the program, if it is not the `etcd` of the path.
const PROGRAM: &str = "TANTALUM_TEST_ETCD";

/// A running etcd of one member. It is ended when this is dropped.
pub struct Etcd {
    child: Child,
    address: String,
}

impl Etcd {
    /// Starts etcd with its data in `directory`. None if it is not installed.
    pub async fn start(directory: &Path) -> Option<Etcd> {
        let program = std::env::var_os(PROGRAM).unwrap_or_else(|| "etcd".into());
        if Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return None;
        }
        let [clients, peers] = free_ports();
        let (client_url, peer_url) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
        let log = File::create(directory.join("etcd.log")).expect("the directory can be written");
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(directory.join("etcd"))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(log.try_clone().expect("a file has a copy"))
            .stderr(log)
            .spawn()
            .expect("it runs");
        Some(Etcd { child, address: format!("127.0.0.1:{clients}") })
    }

    /// A client, once it serves.
    pub async fn client(&self) -> Client {
        let began = Instant::now();
        loop {
            if let Ok(mut client) = Client::try_connect(&self.address).await
                && client.kv.range(crate::differential::read_of(b"a")).await.is_ok()
            {
                return client;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not serve");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Ports that were free a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    listeners.map(|listener| listener.local_addr().expect("it listens").port())
}
