//! A service on tokio: each connection is a task, commits are awaited without a thread, and one write of the log serves all that wait.
//!
//! `cargo run --release -p tantalum --example tokio_service -- /path/to/service.db`, then `nc localhost 7070`:
//! `put KEY VALUE`, `get KEY`. An answer to `put` means that it is durable.

use std::{env, io, path::Path};

use tantalum::{Db, Result, TypedTable};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    task::spawn_blocking,
};

#[derive(Clone)]
struct Service {
    db: Db,
    rows: TypedTable<String, String>,
}

impl Service {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::open(path)?;
        let rows = db.table("rows")?.typed();
        Ok(Self { db, rows })
    }

    /// Writes may wait for locks and pages, so they run where waiting is allowed; only the device is awaited by the task itself.
    async fn put(&self, key: String, value: String) -> Result<()> {
        let service = self.clone();
        let appended = spawn_blocking(move || {
            let mut tx = service.db.begin()?;
            service.rows.put(&mut tx, &key, &value)?;
            tx.commit_async()
        });
        let ticket = appended.await.expect("the closure does not panic")?;
        ticket.await.map(drop)
    }

    async fn get(&self, key: String) -> Result<Option<String>> {
        let service = self.clone();
        let read = spawn_blocking(move || service.rows.get(&service.db, &key));
        read.await.expect("the closure does not panic")
    }

    async fn serve(self, stream: TcpStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await? {
            let answer = match *line.splitn(3, ' ').collect::<Vec<_>>() {
                ["put", key, value] => self.put(key.into(), value.into()).await.map(|()| "durable".into()),
                ["get", key] => self.get(key.into()).await.map(|found| found.unwrap_or_else(|| "not there".into())),
                _ => Ok("say `put KEY VALUE` or `get KEY`".into()),
            };
            let answer: String = answer.unwrap_or_else(|error| format!("error: {error}"));
            writer.write_all(format!("{answer}\n").as_bytes()).await?;
        }
        Ok(())
    }

    async fn accept(self, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let connection = self.clone().serve(stream);
            tokio::spawn(async {
                if let Err(error) = connection.await {
                    eprintln!("a connection ended: {error}");
                }
            });
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-service").into());
    let service = Service::open(path.as_ref())?;
    runtime()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:7070").await?;
        println!("listening on {}", listener.local_addr()?);
        service.accept(listener).await
    })?;
    Ok(())
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    let service = Service::open(&dir.path().join("db")).unwrap();
    let ask = async |address: std::net::SocketAddr, questions: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(questions.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let (mut answers, mut lines) = (Vec::new(), BufReader::new(stream).lines());
        while let Some(line) = lines.next_line().await.unwrap() {
            answers.push(line);
        }
        answers
    };
    runtime().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(service.clone().accept(listener));
        let answers = ask(address, "put a one and two\nget a\nget b\nhello\n").await;
        assert_eq!(answers, ["durable", "one and two", "not there", "say `put KEY VALUE` or `get KEY`"]);
    });
    assert_eq!(service.rows.get(&service.db, "a").unwrap().as_deref(), Some("one and two"));
}
