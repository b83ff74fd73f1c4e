//! The network between members: a proxy before each, which knows by the port that a connection comes from which member it is of, and
//! holds up or cuts connections between two members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How two members are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// What is sent waits.
    Held,
    /// Connections end.
    Cut,
}

/// Two members, by their numbers, the smaller one first.
type Pair = (usize, usize);

#[derive(Default)]
struct State {
    pids: BTreeMap<u32, usize>,
}

/// The proxies of all members.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<State>>,
    apart: watch::Sender<BTreeMap<Pair, Apart>>,
}

fn pair(one: usize, other: usize) -> Pair {
    (one.min(other), one.max(other))
}

/// Which of some processes has the socket with this local port.
fn owner(port: u16, pids: &BTreeMap<u32, usize>) -> Option<usize> {
    let sockets = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    let inodes: BTreeSet<String> = sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&local.as_str()))
        .filter_map(|fields| Some(format!("socket:[{}]", fields.get(9)?)))
        .collect();
    pids.iter().find_map(|(pid, member)| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let mut links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.any(|link| inodes.contains(link.to_string_lossy().as_ref())).then_some(*member)
    })
}

impl Net {
    pub fn new() -> Net {
        Net { state: Arc::default(), apart: watch::Sender::default() }
    }

    /// A process is a member.
    pub fn runs(&self, pid: u32, member: usize) {
        let mut state = self.state.lock().expect("no panic");
        state.pids.retain(|_, other| *other != member);
        state.pids.insert(pid, member);
    }

    /// Puts two members apart.
    pub fn part(&self, one: usize, other: usize, apart: Apart) {
        self.apart.send_modify(|all| all.extend([(pair(one, other), apart)]));
    }

    /// Brings all together.
    pub fn join(&self) {
        self.apart.send_modify(BTreeMap::clear);
    }

    /// Passes connections to a member on to a port.
    pub fn serve(&self, listener: TcpListener, member: usize, port: u16) {
        let net = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let net = net.clone();
                tokio::spawn(async move {
                    let pids = net.state.lock().expect("no panic").pids.clone();
                    let owner = tokio::task::spawn_blocking(move || owner(from.port(), &pids)).await;
                    // Its process is gone.
                    let Ok(Some(of)) = owner else { return };
                    net.pass(stream, pair(of, member), port).await;
                });
            }
        });
    }

    async fn pass(&self, stream: TcpStream, between: Pair, port: u16) {
        let mut apart = self.apart.subscribe();
        if !wait(&mut apart, between).await {
            return;
        }
        let Ok(to) = TcpStream::connect(("127.0.0.1", port)).await else { return };
        let _ = (stream.set_nodelay(true), to.set_nodelay(true));
        let ((from_client, to_client), (from_member, to_member)) = (stream.into_split(), to.into_split());
        let pump = |from, to| pump(from, to, apart.clone(), between);
        tokio::select! {
            () = pump(from_client, to_member) => {}
            () = pump(from_member, to_client) => {}
        }
    }
}

/// Waits until what is sent between two goes on. False if their connections are to end.
async fn wait(apart: &mut watch::Receiver<BTreeMap<Pair, Apart>>, between: Pair) -> bool {
    let together = apart.wait_for(|all| all.get(&between) != Some(&Apart::Held)).await;
    together.is_ok_and(|all| !all.contains_key(&between))
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut apart: watch::Receiver<BTreeMap<Pair, Apart>>,
    between: Pair,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            _ = apart.wait_for(|all| all.get(&between) == Some(&Apart::Cut)) => return,
        };
        match read {
            Ok(read) if read > 0 && wait(&mut apart, between).await => {
                if to.write_all(&bytes[..read]).await.is_err() {
                    return;
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}
