//! The members that a cluster begins with, as flags or a file name them, and the numbers that follow from that.

use std::collections::BTreeMap;
use std::io;

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The members of a cluster that is to be made, or joined.
///
/// Members' numbers follow from their URLs and the token, the cluster's from those of its members: all members that are given the same
/// come to the same.
///
/// ```
/// use tantalum_server::ClusterConfig;
///
/// let flag = ClusterConfig::from_flag("a=http://10.0.0.1:2380,b=http://10.0.0.2:2380", "token")?;
/// let file = ClusterConfig::from_toml("token = 'token'\n[members]\nb = 'http://10.0.0.2:2380'\na = ['http://10.0.0.1:2380']")?;
/// assert_eq!(flag, file);
/// assert!(ClusterConfig::from_flag("a", "token").unwrap_err().to_string().contains("NAME=http://HOST:PORT"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Tells clusters apart that have the same URLs. [`DEFAULT_TOKEN`](Self::DEFAULT_TOKEN) if nothing else is said.
    pub token: String,
    /// The URLs at which members reach each other, by the members' names.
    pub members: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    token: Option<String>,
    members: BTreeMap<String, Urls>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Urls {
    One(String),
    Some(Vec<String>),
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// A number below 2^63, as TOML has it, and not 0, which is no member.
fn number(hash: Sha256) -> u64 {
    let hash = hash.finalize();
    let first = hash.first_chunk().copied().map_or(0, u64::from_be_bytes);
    (first & i64::MAX as u64).max(1)
}

/// Whether members and clients can be reached at a URL.
pub(crate) fn is_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    let is_root = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.port_u16().is_some() && is_root
}

impl ClusterConfig {
    /// The token of clusters that are given none, as etcd's.
    pub const DEFAULT_TOKEN: &str = "etcd-cluster";

    /// What etcd's `--initial-cluster` says: names and URLs, `a=http://10.0.0.1:2380,b=http://10.0.0.2:2380`. A name with several
    /// URLs stands before each.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn from_flag(flag: &str, token: &str) -> io::Result<ClusterConfig> {
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for member in flag.split(',') {
            let (name, url) = member.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                invalid(format!("--initial-cluster {flag}: {member:?} is no member; write NAME=http://HOST:PORT"))
            })?;
            members.entry(name.to_owned()).or_default().push(url.to_owned());
        }
        ClusterConfig { token: token.to_owned(), members }.checked("--initial-cluster")
    }

    /// What a file says: a table `members` with the URL of each, or its URLs, and a `token` if there is one.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn from_toml(text: &str) -> io::Result<ClusterConfig> {
        let file: File = toml::from_str(text).map_err(|error| {
            invalid(format!(
                "the cluster's file is not one: {error}; write [members], and name = \"http://HOST:PORT\" for each"
            ))
        })?;
        let urls = |urls| match urls {
            Urls::One(url) => vec![url],
            Urls::Some(urls) => urls,
        };
        let members = file.members.into_iter().map(|(name, of)| (name, urls(of))).collect();
        let token = file.token.unwrap_or_else(|| Self::DEFAULT_TOKEN.to_owned());
        ClusterConfig { token, members }.checked("the cluster's file")
    }

    fn checked(mut self, place: &str) -> io::Result<ClusterConfig> {
        let mut seen = BTreeMap::new();
        for (name, urls) in &mut self.members {
            urls.sort();
            if urls.is_empty() {
                return Err(invalid(format!("{place}: {name} has no URL; give it http://HOST:PORT")));
            }
            for url in urls {
                if !is_url(url) {
                    let what = format!("{place}: {url:?} of {name} is not http://HOST:PORT or https://HOST:PORT");
                    return Err(invalid(what));
                }
                if let Some(other) = seen.insert(url.clone(), name.clone()) {
                    return Err(invalid(format!("{place}: {other} and {name} have the URL {url}; give each its own")));
                }
            }
        }
        match self.members.is_empty() {
            true => Err(invalid(format!("{place}: there is no member; name at least one"))),
            false => Ok(self),
        }
    }

    /// The URLs of a member.
    ///
    /// # Errors
    /// If there is no member of this name.
    pub fn peer_urls(&self, name: &str) -> io::Result<&[String]> {
        self.members.get(name).map(Vec::as_slice).ok_or_else(|| {
            let names: Vec<_> = self.members.keys().map(String::as_str).collect();
            invalid(format!("the cluster has no member {name}, it has {}; choose one with --name", names.join(", ")))
        })
    }

    /// The number of the member with these URLs.
    pub(crate) fn member_id(&self, peer_urls: &[String]) -> u64 {
        let mut hash = Sha256::new();
        for part in peer_urls.iter().chain([&self.token]) {
            hash.update(part);
            hash.update([0]);
        }
        number(hash)
    }

    /// The cluster's number.
    pub(crate) fn cluster_id(&self) -> u64 {
        let mut members: Vec<_> = self.members.values().map(|urls| self.member_id(urls)).collect();
        members.sort_unstable();
        let mut hash = Sha256::new();
        members.into_iter().for_each(|member| hash.update(member.to_be_bytes()));
        number(hash)
    }

    /// The cluster's number if its members begin with a snapshot: those that begin with another, or with nothing, are none of it.
    pub(crate) fn restored_cluster_id(&self, checksum: &[u8]) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.cluster_id().to_be_bytes());
        hash.update(checksum);
        number(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_urls_and_token_alone() {
        let flag = |flag: &str, token: &str| ClusterConfig::from_flag(flag, token).expect("it is one");
        let abc = flag("a=http://h:1,b=http://h:2,b=http://h:3", "t");
        let other_order = flag("b=http://h:3,b=http://h:2,a=http://h:1", "t");
        assert_eq!(abc, other_order);
        assert_eq!(abc.cluster_id(), flag("x=http://h:1,y=http://h:2,y=http://h:3", "t").cluster_id());
        let id = |config: &ClusterConfig, name: &str| config.member_id(config.peer_urls(name).expect("it is there"));
        assert_ne!(id(&abc, "a"), id(&abc, "b"));
        let other_token = flag("a=http://h:1,b=http://h:2,b=http://h:3", "u");
        assert!(id(&abc, "a") != id(&other_token, "a") && abc.cluster_id() != other_token.cluster_id());
    }

    #[test]
    fn what_is_no_cluster_is_refused_by_name() {
        for (flag, message) in [
            ("", "no member; write NAME="),
            ("=http://h:1", "no member; write NAME="),
            ("a=ftp://h:1", "\"ftp://h:1\" of a is not http://HOST:PORT"),
            ("a=http://h", "is not http://HOST:PORT"),
            ("a=http://h:1,b=http://h:1", "a and b have the URL http://h:1"),
        ] {
            let refused = ClusterConfig::from_flag(flag, "t").expect_err("it is none").to_string();
            assert!(refused.contains(message), "{refused}");
        }
        let refused = ClusterConfig::from_toml("[members]").expect_err("it is none").to_string();
        assert!(refused.contains("there is no member"), "{refused}");
        let config = ClusterConfig::from_toml("[members]\na = 'http://h:1'\nb = []");
        assert!(config.expect_err("b has none").to_string().contains("b has no URL"));
        let config = ClusterConfig::from_toml("[members]\na = 'http://h:1'").expect("it is one");
        assert!(config.peer_urls("c").expect_err("it is none").to_string().contains("no member c, it has a"));
    }
}
