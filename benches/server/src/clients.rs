//! A client of etcd's API, the same for all servers.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::kv_client::KvClient;
use crate::api::etcdserverpb::lease_client::LeaseClient;
use crate::api::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::error::{Error, Result};

/// No answer takes longer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to a node. Clones share it.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
}

fn said(status: tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

impl Client {
    /// A connection that is made when it is needed.
    ///
    /// # Errors
    /// If `url` is none.
    pub fn connect(url: &str) -> Result<Client> {
        let endpoint =
            Endpoint::from_shared(url.to_owned()).map_err(|error| Error::Other(format!("{url}: {error}")))?;
        Ok(Client { channel: endpoint.tcp_nodelay(true).timeout(TIMEOUT).connect_lazy() })
    }

    /// Sets a key.
    ///
    /// # Errors
    /// What the server says.
    pub async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), String> {
        let request = pb::PutRequest { key, value, ..Default::default() };
        KvClient::new(self.channel.clone()).put(request).await.map(drop).map_err(said)
    }

    /// Sets keys, in one transaction.
    ///
    /// # Errors
    /// What the server says.
    pub async fn put_all(&self, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), String> {
        let put = |(key, value)| {
            let put = pb::PutRequest { key, value, ..Default::default() };
            pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) }
        };
        let request = pb::TxnRequest { success: rows.map(put).collect(), ..Default::default() };
        KvClient::new(self.channel.clone()).txn(request).await.map(drop).map_err(said)
    }

    /// Reads a key, which must be there.
    ///
    /// # Errors
    /// What the server says, or that the key is not there.
    pub async fn get(&self, key: Vec<u8>, serializable: bool) -> Result<(), String> {
        let request = pb::RangeRequest { key, serializable, ..Default::default() };
        let answer = KvClient::new(self.channel.clone()).range(request).await.map_err(said)?;
        if answer.into_inner().kvs.len() == 1 { Ok(()) } else { Err("a key is not there".to_owned()) }
    }

    /// What a node says of itself.
    ///
    /// # Errors
    /// What the server says.
    pub async fn status(&self) -> Result<pb::StatusResponse, String> {
        let answer = MaintenanceClient::new(self.channel.clone()).status(pb::StatusRequest {}).await;
        answer.map(tonic::Response::into_inner).map_err(said)
    }

    /// The revision of a node's store, as it is there.
    ///
    /// # Errors
    /// What the server says.
    pub async fn revision(&self) -> Result<i64, String> {
        Ok(self.status().await?.header.map_or(0, |header| header.revision))
    }

    /// Makes a lease. Returns its number.
    ///
    /// # Errors
    /// What the server says.
    pub async fn grant(&self, ttl: i64) -> Result<i64, String> {
        let answer = LeaseClient::new(self.channel.clone()).lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await;
        Ok(answer.map_err(said)?.into_inner().id)
    }

    /// Keeps leases alive, one after the other, by one stream.
    ///
    /// # Errors
    /// What the server says, or that a lease is gone.
    pub async fn keep_alive(&self, leases: Vec<i64>) -> Result<(), String> {
        let (requests, receiver) = tokio::sync::mpsc::channel(1);
        let mut client = LeaseClient::new(self.channel.clone());
        let requested = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let mut leases = leases.into_iter();
        let Some(first) = leases.next() else { return Ok(()) };
        // Some servers answer the call when they have a request.
        let send =
            async |id| requests.send(pb::LeaseKeepAliveRequest { id }).await.map_err(|_| "the stream ended".to_owned());
        send(first).await?;
        let mut answers = client.lease_keep_alive(requested).await.map_err(said)?.into_inner();
        loop {
            match answers.message().await.map_err(said)? {
                Some(answer) if answer.ttl > 0 => {}
                Some(answer) => return Err(format!("lease {:x} is gone", answer.id)),
                None => return Err("the stream ended".to_owned()),
            }
            match leases.next() {
                Some(id) => send(id).await?,
                None => return Ok(()),
            }
        }
    }
}
