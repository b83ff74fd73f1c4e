//! Certificates, for clients and for other members.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::options::{Bootstrap, NodeOptions};

/// What a member shows to prove what it is, and whether it demands the same of others. The files are PEM, and are read when the member starts.
///
/// ```
/// use tantalum_server::{Node, NodeOptions, Tls};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let tls = Tls::new("/etc/store/server.pem", "/etc/store/server.key").trusted_ca("/etc/store/ca.pem").demand_certificates();
/// let directory = tempfile::tempdir()?;
/// let options = NodeOptions { client_tls: Some(tls), ..NodeOptions::default() };
/// let refused = Node::open(directory.path().join("member"), options).await.unwrap_err();
/// assert!(refused.to_string().starts_with("/etc/store/server.pem: cannot read"));
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    trusted_ca: Option<PathBuf>,
    demands_certificates: bool,
}

/// What the options of a member come to.
pub(crate) struct Loaded {
    pub for_clients: Option<ServerTlsConfig>,
    pub for_members: Option<ServerTlsConfig>,
    pub to_members: Option<ClientTlsConfig>,
}

impl Loaded {
    /// Reads the files that the options name, and looks whether URLs go with them.
    ///
    /// # Errors
    /// Which file or URL is wrong, and what to do about it.
    pub fn of(options: &NodeOptions) -> io::Result<Loaded> {
        let clients = options.client_tls.as_ref().map(Tls::load).transpose()?;
        let members = options.peer_tls.as_ref().map(Tls::load).transpose()?;
        let named = match &options.bootstrap {
            Bootstrap::Alone => Vec::new(),
            Bootstrap::New(config) | Bootstrap::Join(config) => config.members.values().flatten().collect(),
        };
        check_scheme(named.into_iter().chain(&options.peer_urls), members.is_some())?;
        let to_members = match &members {
            Some((_, None)) => {
                let what = "members with TLS need the authorities that each other's certificates are from; name their file \
                            (--peer-trusted-ca-file)";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            Some((_, to)) => to.clone(),
            None => None,
        };
        let for_clients = clients.map(|(server, _)| server);
        Ok(Loaded { for_clients, for_members: members.map(|(server, _)| server), to_members })
    }
}

impl Tls {
    /// With a certificate, or a chain of them, and its private key.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        Tls { certificate: certificate.into(), key: key.into(), trusted_ca: None, demands_certificates: false }
    }

    /// Certificates of the authorities that those of others may be from. Members need them to reach each other.
    #[must_use]
    pub fn trusted_ca(self, file: impl Into<PathBuf>) -> Tls {
        Tls { trusted_ca: Some(file.into()), ..self }
    }

    /// All that connect must show a certificate of such an authority.
    #[must_use]
    pub fn demand_certificates(self) -> Tls {
        Tls { demands_certificates: true, ..self }
    }

    /// Reads the files, and looks whether they belong together. There is TLS for connections to others if their authorities are known.
    fn load(&self) -> io::Result<(ServerTlsConfig, Option<ClientTlsConfig>)> {
        let certificate = read(&self.certificate, "CERTIFICATE")?;
        let key = read(&self.key, "PRIVATE KEY")?;
        let identity = Identity::from_pem(certificate, key);
        let ca = match &self.trusted_ca {
            Some(file) => Some(Certificate::from_pem(read(file, "CERTIFICATE")?)),
            None if self.demands_certificates => {
                let what = "certificates are demanded, and no authority is named that they may be from; name its file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            None => None,
        };
        let mut server = ServerTlsConfig::new().identity(identity.clone());
        if let Some(ca) = ca.clone().filter(|_| self.demands_certificates) {
            server = server.client_ca_root(ca);
        }
        // Made once, to learn whether the files can be used.
        tonic::transport::Server::builder().tls_config(server.clone()).map_err(|error| {
            let what = format!(
                "{} and {} are no certificate and its key: {}; name those that belong together",
                self.certificate.display(),
                self.key.display(),
                causes(&error)
            );
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let client = ca.map(|ca| ClientTlsConfig::new().ca_certificate(ca).identity(identity));
        Ok((server, client))
    }
}

/// An error with what it comes from.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn read(path: &Path, label: &str) -> io::Result<Vec<u8>> {
    let what = |what: String| format!("{}: {what}", path.display());
    let bytes = fs::read(path).map_err(|error| io::Error::new(error.kind(), what(format!("cannot read: {error}"))))?;
    let (begin, label_end) = (b"-----BEGIN ", format!("{label}-----"));
    let has_one = bytes.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii();
        line.starts_with(begin) && line.ends_with(label_end.as_bytes())
    });
    match has_one {
        true => Ok(bytes),
        false => {
            let what = what(format!("has no {label}; name a PEM file that has one"));
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// Whether the URLs of members go with what a member was told of TLS.
///
/// # Errors
/// The first that does not, and what to do.
pub(crate) fn check_scheme<'u>(urls: impl IntoIterator<Item = &'u String>, has_tls: bool) -> io::Result<()> {
    for url in urls {
        let what = match (url.starts_with("https://"), has_tls) {
            (true, false) => {
                "has TLS, and this member has no certificate for other members; give it one, or write http://"
            }
            (false, true) => "has no TLS, and this member was given a certificate for other members; write https://",
            _ => continue,
        };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the URL {url} of a member {what}")));
    }
    Ok(())
}
