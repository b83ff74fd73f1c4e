//! Members and clients with certificates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tantalum_server::api::etcdserverpb::kv_client::KvClient;
use tantalum_server::api::etcdserverpb::{PutRequest, RangeRequest};
use tantalum_server::{Bootstrap, ClusterConfig, Node, NodeOptions, Tls};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::common::{Running, free_port, options, until};

/// An authority, and files of certificates from it.
struct Authority {
    directory: PathBuf,
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(directory: &Path, name: &'static str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(directory.join(format!("{name}.ca")), certificate.pem()).expect("written");
        Authority { directory: directory.to_owned(), name, issuer: Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.directory.join(format!("{}.ca", self.name))
    }

    /// Files with a certificate and its key, for this machine.
    fn certify(&self, of: &str) -> (PathBuf, PathBuf) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |what: &str| self.directory.join(format!("{}-{of}.{what}", self.name));
        std::fs::write(file("pem"), certificate.pem()).expect("written");
        std::fs::write(file("key"), key.serialize_pem()).expect("written");
        (file("pem"), file("key"))
    }

    fn tls(&self, of: &str) -> Tls {
        let (certificate, key) = self.certify(of);
        Tls::new(certificate, key).trusted_ca(self.ca()).demand_certificates()
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it is there")
}

/// A connection to a member that proves what it is by a certificate of this authority, or by none.
async fn connect(
    address: &str,
    trusted: &Authority,
    own: Option<&Authority>,
) -> Result<Channel, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&trusted.ca())));
    let tls = own.iter().fold(tls, |tls, own| {
        let (certificate, key) = own.certify("client");
        tls.identity(Identity::from_pem(read(&certificate), read(&key)))
    });
    Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?.connect().await
}

fn put(key: &str) -> PutRequest {
    PutRequest { key: key.into(), value: b"v".to_vec(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_and_clients_prove_what_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let [ours, other] = ["ours", "other"].map(|name| Authority::new(directory.path(), name));
    let names = ["a", "b", "c"];
    let ports: BTreeMap<_, _> = names.map(|name| (name, free_port())).into();
    let members = ports.iter().map(|(name, port)| ((*name).to_owned(), vec![format!("https://127.0.0.1:{port}")]));
    let config = ClusterConfig { token: "tls".to_owned(), members: members.collect() };
    let start = async |name: &'static str, by: &Authority| {
        let options = NodeOptions {
            name: name.to_owned(),
            bootstrap: Bootstrap::New(config.clone()),
            client_tls: Some(ours.tls(name)),
            peer_tls: Some(by.tls(name)),
            ..options()
        };
        Running::start(directory.path().join(name), ports[name], options).await.expect("it starts")
    };
    let mut running = Vec::new();
    for name in names {
        running.push(start(name, &ours).await);
    }
    for (n, member) in running.iter().enumerate() {
        let mut client = KvClient::new(connect(&member.address, &ours, Some(&ours)).await.expect("it is let in"));
        client.put(put(&format!("k{n}"))).await.expect("it is written");
        let all = RangeRequest { key: b"k".to_vec(), range_end: b"l".to_vec(), ..Default::default() };
        assert_eq!(client.range(all).await.expect("it is read").into_inner().count, n as i64 + 1);
        // Without a certificate, with one of another authority, and without TLS.
        for own in [None, Some(&other)] {
            let refused = match connect(&member.address, &ours, own).await {
                Ok(channel) => KvClient::new(channel).put(put("k")).await.is_err(),
                Err(_) => true,
            };
            assert!(refused);
        }
        assert!(connect(&member.address, &other, Some(&ours)).await.is_err(), "the client trusts another");
        let plain = match Endpoint::from_shared(format!("http://{}", member.address)).expect("a URL").connect().await {
            Ok(channel) => KvClient::new(channel).put(put("k")).await.is_err(),
            Err(_) => true,
        };
        assert!(plain);
    }
    etcdctl(&running, &ours).await;
    // With a certificate of another authority it is not let in, and comes back with its own.
    running.pop().expect("the last").crash().await;
    let stranger = start("c", &other).await;
    let mut client = KvClient::new(connect(&running[0].address, &ours, Some(&ours)).await.expect("it is let in"));
    for n in 0..20 {
        client.put(put(&format!("m{n}"))).await.expect("two are enough");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let serializable = RangeRequest { key: b"m0".to_vec(), serializable: true, ..Default::default() };
    let mut of_stranger = KvClient::new(connect(&stranger.address, &ours, Some(&ours)).await.expect("it is let in"));
    assert_eq!(of_stranger.range(serializable.clone()).await.expect("its own state").into_inner().count, 0);
    drop(of_stranger);
    stranger.crash().await;
    let back = start("c", &ours).await;
    let of_back = KvClient::new(connect(&back.address, &ours, Some(&ours)).await.expect("it is let in"));
    until("the member has what it missed", async || {
        let found = of_back.clone().range(serializable.clone()).await;
        found.is_ok_and(|found| found.into_inner().count == 1)
    })
    .await;
    drop((client, of_back));
    running.push(back);
    for member in running {
        member.crash().await;
    }
}

async fn etcdctl(running: &[Running], ours: &Authority) {
    let version = Command::new("etcdctl").arg("version").env("ETCDCTL_API", "3").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no etcdctl");
        return;
    }
    let (certificate, key) = ours.certify("etcdctl");
    let endpoints: Vec<_> = running.iter().map(|member| format!("https://{}", member.address)).collect();
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg("--cacert").arg(ours.ca()).arg("--cert").arg(certificate).arg("--key").arg(key);
    command.args(["--endpoints", &endpoints.join(","), "get", "--prefix", "k", "--keys-only"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "k0\n\nk1\n\nk2\n\n");
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = Authority::new(directory.path(), "ours");
    let ((certificate, key), (_, other_key)) = (ours.certify("a"), ours.certify("b"));
    let nowhere = directory.path().join("nowhere");
    let https = ClusterConfig::from_flag("a=https://127.0.0.1:1,b=https://127.0.0.1:2", "t").expect("it is one");
    let http = ClusterConfig::from_flag("a=http://127.0.0.1:1,b=http://127.0.0.1:2", "t").expect("it is one");
    let of_clients = |tls| NodeOptions { client_tls: Some(tls), ..options() };
    let of_peers = |tls, config: &ClusterConfig| {
        let bootstrap = Bootstrap::New(config.clone());
        NodeOptions { peer_tls: tls, bootstrap, name: "a".to_owned(), ..options() }
    };
    let with_ca = || Tls::new(&certificate, &key).trusted_ca(ours.ca());
    let cases = [
        (of_clients(Tls::new(&nowhere, &key)), "nowhere: cannot read"),
        (of_clients(Tls::new(&key, &key)), "has no CERTIFICATE; name a PEM file"),
        (of_clients(Tls::new(&certificate, &certificate)), "has no PRIVATE KEY; name a PEM file"),
        (of_clients(Tls::new(&certificate, &other_key)), "are no certificate and its key"),
        (of_clients(Tls::new(&certificate, &key).demand_certificates()), "no authority is named"),
        (of_clients(Tls::new(&certificate, &key).trusted_ca(&nowhere)), "nowhere: cannot read"),
        (of_peers(Some(Tls::new(&certificate, &key)), &https), "need the authorities"),
        (of_peers(None, &https), "has TLS, and this member has no certificate"),
        (of_peers(Some(with_ca()), &http), "has no TLS, and this member was given a certificate"),
    ];
    for (options, expected) in cases {
        let path = directory.path().join("member");
        let refused = Node::open(&path, options).await.expect_err(expected).to_string();
        assert!(refused.contains(expected), "{expected}: {refused}");
        assert!(!path.exists(), "{expected}: a directory is made");
    }
}
