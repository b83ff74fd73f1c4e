//! The task of a stream.

use futures_util::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, interval_at};
use tonic::{Status, Streaming};

use super::watchers::{NO_WATCHER, Watchers, fragments};
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::watch_request::RequestUnion;
use crate::api::mvccpb::Event as EventOfKey;
use crate::feed::{Batch, Found};
use crate::node::Node;
use crate::refusal::Refusal;

type Responses = Sender<Result<pb::WatchResponse, Status>>;

/// The client is gone.
struct Gone;

/// Why a stream ends.
enum End {
    Gone,
    Failed(Status),
}

impl From<Gone> for End {
    fn from(_: Gone) -> End {
        End::Gone
    }
}

impl From<Status> for End {
    fn from(status: Status) -> End {
        End::Failed(status)
    }
}

struct Stream {
    node: Node,
    responses: Responses,
    watchers: Watchers,
}

/// Serves a stream until the client ends it.
pub async fn serve(node: Node, mut requests: Streaming<pb::WatchRequest>, responses: Responses) -> Result<(), Status> {
    let mut revisions = node.feed().subscribe();
    let period = node.options().watch_progress_interval.max(std::time::Duration::from_millis(1));
    let mut progress = interval_at(Instant::now() + period, period);
    let mut stream = Stream { node, responses, watchers: Watchers::default() };
    loop {
        let served = tokio::select! {
            request = requests.next() => match request {
                Some(Ok(request)) => stream.take(request).await,
                Some(Err(_)) | None => Err(End::Gone),
            },
            changed = revisions.changed() => match changed {
                Ok(()) => {
                    let revision = *revisions.borrow_and_update();
                    stream.advance(revision).await
                }
                Err(_) => Err(Status::from(Refusal::Stopped).into()),
            },
            _ = progress.tick() => stream.tell_progress().await,
            () = stream.responses.closed() => Err(End::Gone),
        };
        match served {
            Ok(()) => {}
            Err(End::Gone) => return Ok(()),
            Err(End::Failed(status)) => return Err(status),
        }
    }
}

impl Stream {
    async fn send(&self, response: pb::WatchResponse) -> Result<(), Gone> {
        self.responses.send(Ok(response)).await.map_err(|_| Gone)
    }

    async fn current(&self) -> Result<i64, Status> {
        self.node.read(|view| Ok(view.revision()?)).await
    }

    async fn take(&mut self, request: pb::WatchRequest) -> Result<(), End> {
        let current = self.current().await?;
        let header = self.node.header(current);
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => {
                let made = match create.start_revision < 0 {
                    true => Err(Refusal::Compacted.message()),
                    false => self.watchers.create(&create, current),
                };
                let response = pb::WatchResponse {
                    header,
                    watch_id: made.unwrap_or(NO_WATCHER),
                    created: true,
                    canceled: made.is_err(),
                    cancel_reason: made.err().unwrap_or_default().to_owned(),
                    ..pb::WatchResponse::default()
                };
                self.send(response).await?;
                // What the feed still has does not make up for what is given up.
                let compacted = self.node.read(|view| Ok(view.compacted()?)).await?;
                self.cancel_before(compacted).await?;
                self.advance(current).await
            }
            Some(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })) => {
                if self.watchers.by_id.remove(&watch_id).is_some() {
                    let response = pb::WatchResponse { header, watch_id, canceled: true, ..Default::default() };
                    self.send(response).await?;
                }
                Ok(())
            }
            Some(RequestUnion::ProgressRequest(_)) => {
                // All watchers are there when the answer says so.
                self.advance(current).await?;
                Ok(self.send(pb::WatchResponse { header, watch_id: NO_WATCHER, ..Default::default() }).await?)
            }
            None => Ok(()),
        }
    }

    /// Brings all watchers to a revision that the store has.
    async fn advance(&mut self, to: i64) -> Result<(), End> {
        while let Some(from) = self.watchers.furthest_behind().filter(|from| *from <= to) {
            match self.node.events(from, to).await? {
                Found::Events(batch) => self.deliver(&batch).await?,
                Found::Compacted(compacted) => self.cancel_before(compacted).await?,
            }
        }
        Ok(())
    }

    /// Gives watchers what they want of a batch, those that are not before it.
    async fn deliver(&mut self, batch: &Batch) -> Result<(), End> {
        let due = |next: i64| batch.from <= next && next <= batch.to;
        let ids: Vec<_> =
            self.watchers.by_id.iter().filter(|(_, watcher)| due(watcher.next)).map(|(id, _)| *id).collect();
        for watch_id in ids {
            let Some(watcher) = self.watchers.by_id.get_mut(&watch_id) else { continue };
            let mut events = watcher.select(&batch.events);
            watcher.next = batch.to + 1;
            if events.is_empty() {
                continue;
            }
            watcher.is_fresh = true;
            let (wants_previous, wants_fragments) = (watcher.wants_previous, watcher.wants_fragments);
            if wants_previous {
                events = self.with_previous(events).await?;
            }
            let header = self.node.header(batch.to);
            let response = pb::WatchResponse { header, watch_id, events, ..Default::default() };
            let max_bytes = if wants_fragments { self.node.options().max_request_bytes } else { usize::MAX };
            for response in fragments(response, max_bytes) {
                self.send(response).await?;
            }
        }
        Ok(())
    }

    /// Adds what keys were before their events, as far as that is not compacted.
    async fn with_previous(&self, mut events: Vec<EventOfKey>) -> Result<Vec<EventOfKey>, Status> {
        let read = self.node.read(move |view| {
            let compacted = view.compacted()?;
            for event in &mut events {
                let Some(key_value) = &event.kv else { continue };
                let before = key_value.mod_revision - 1;
                if key_value.version != 1 && before >= compacted {
                    event.prev_kv = view.get_at(&key_value.key, before)?;
                }
            }
            Ok(events)
        });
        read.await
    }

    /// Ends the watchers whose revisions are given up.
    async fn cancel_before(&mut self, compact_revision: i64) -> Result<(), End> {
        let ids: Vec<_> = self
            .watchers
            .by_id
            .iter()
            .filter(|(_, watcher)| watcher.next < compact_revision)
            .map(|(id, _)| *id)
            .collect();
        let header = self.node.header(self.current().await?);
        for watch_id in ids {
            self.watchers.by_id.remove(&watch_id);
            let response = pb::WatchResponse {
                header,
                watch_id,
                canceled: true,
                compact_revision,
                ..pb::WatchResponse::default()
            };
            self.send(response).await?;
        }
        Ok(())
    }

    /// Tells watchers that ask for it how far they are, unless they got something meanwhile.
    async fn tell_progress(&mut self) -> Result<(), End> {
        let current = self.current().await?;
        self.advance(current).await?;
        let header = self.node.header(current);
        let mut quiet = Vec::new();
        for (id, watcher) in self.watchers.by_id.iter_mut().filter(|(_, watcher)| watcher.wants_progress) {
            // A watcher that waits for a later revision has not come to this one.
            if !std::mem::take(&mut watcher.is_fresh) && watcher.next == current + 1 {
                quiet.push(*id);
            }
        }
        for watch_id in quiet {
            self.send(pb::WatchResponse { header, watch_id, ..pb::WatchResponse::default() }).await?;
        }
        Ok(())
    }
}
