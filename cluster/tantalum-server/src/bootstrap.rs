//! What a new member is made as, after asking those that are there.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tonic::Status;
use tonic::transport::ClientTlsConfig;

use crate::api::peer::{Member, MembersResponse};
use crate::cluster_config::ClusterConfig;
use crate::directory::{Identity, MemberFile};
use crate::options::{Bootstrap, NodeOptions};
use crate::peers::{Connector, members_at};

/// So long others have to answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn refuse(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// What the others of a cluster say of its members, and at which URLs.
async fn ask(
    config: &ClusterConfig,
    name: &str,
    connector: &Connector,
) -> Vec<(String, Result<MembersResponse, Status>)> {
    let others = config.members.iter().filter(|(other, _)| *other != name).flat_map(|(_, urls)| urls.clone());
    join_all(others.map(|url| async move { (url.clone(), members_at(&url, connector).await) })).await
}

fn find(members: &MembersResponse, is_it: impl Fn(&Member) -> bool) -> Option<&Member> {
    members.members.iter().find(|member| is_it(member))
}

fn started_already(name: &str, member: &Member, url: &str) -> io::Error {
    refuse(format!(
        "member {name} ({:x}) was started before, says the member at {url}, and its directory is not this one: start it with its \
         directory, or remove it and add it anew (member remove, member add) if that is lost",
        member.id
    ))
}

/// What a member is made as that has no directory yet.
pub async fn plan(options: &NodeOptions, tls: Option<ClientTlsConfig>) -> io::Result<MemberFile> {
    let connector = &Connector { patience: PATIENCE, tls };
    match &options.bootstrap {
        Bootstrap::Alone => Ok(MemberFile::alone()),
        Bootstrap::New(config) => new(config, &options.name, connector).await,
        Bootstrap::Join(config) => join(config, &options.name, connector).await,
    }
}

async fn new(config: &ClusterConfig, name: &str, connector: &Connector) -> io::Result<MemberFile> {
    let member_id = config.member_id(config.peer_urls(name)?);
    let identity = Identity { member_id, cluster_id: config.cluster_id() };
    // A member that lost its directory must not vote again.
    for (url, said) in ask(config, name, connector).await {
        let Ok(said) = said else { continue };
        if said.cluster != identity.cluster_id {
            return Err(refuse(format!(
                "the member at {url} is of cluster {:x}, and the cluster that is named is {:x}; name the same members and token on all; \
                 if that one was restored, restore this one from the same snapshot",
                said.cluster, identity.cluster_id
            )));
        }
        if let Some(member) = find(&said, |member| member.id == member_id && !member.client_urls.is_empty()) {
            return Err(started_already(name, member, &url));
        }
        let is_known = find(&said, |member| member.id == member_id).is_some();
        if !is_known && !said.members.is_empty() {
            return Err(refuse(format!(
                "member {name} ({member_id:x}) is none of its cluster any more, says the member at {url}: add it anew (member add), \
                 and start it with --initial-cluster-state existing"
            )));
        }
    }
    MemberFile::of(config, name, identity.cluster_id)
}

async fn join(config: &ClusterConfig, name: &str, connector: &Connector) -> io::Result<MemberFile> {
    let own = config.peer_urls(name)?;
    let mut failures = Vec::new();
    for (url, said) in ask(config, name, connector).await {
        let said = match said {
            Ok(said) => said,
            Err(status) => {
                failures.push(format!("{url}: {}", status.message()));
                continue;
            }
        };
        let has_urls = |member: &Member| {
            let mut urls = member.peer_urls.clone();
            urls.sort();
            urls == own
        };
        match find(&said, has_urls) {
            Some(member) if !member.client_urls.is_empty() => return Err(started_already(name, member, &url)),
            Some(member) => {
                let identity = Identity { member_id: member.id, cluster_id: said.cluster };
                return Ok(MemberFile { is_joined: true, ..MemberFile::new(identity, Some(name.to_owned())) });
            }
            None => failures.push(format!(
                "{url}: its cluster has no member with the URL {}; add it first (member add {name} --peer-urls={})",
                own.join(","),
                own.join(",")
            )),
        }
    }
    if failures.is_empty() {
        failures.push("no other member is named".to_owned());
    }
    Err(refuse(format!("no member of the cluster can be asked which one {name} is: {}", failures.join("; "))))
}
