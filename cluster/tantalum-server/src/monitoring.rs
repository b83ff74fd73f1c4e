//! What a monitoring system asks for, over HTTP: metrics, and whether the member is well.

use std::future::Future;
use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusBuilder;
use openraft::type_config::async_runtime::WatchReceiver;
use tokio::net::TcpListener;
use tonic::Status;

use crate::node::{Node, blocking};

/// Serves a node's metrics and health over HTTP at `listener`, until `stop` is ready: `/metrics` in Prometheus's format, `/health`,
/// `/livez` and `/readyz` as etcd has them.
///
/// # Errors
/// Those of the listener.
pub async fn serve_monitoring(
    node: Node,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(node);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await
}

/// Why the member is not well; `None` if it is.
async fn illness(node: &Node) -> Option<String> {
    let alarms = node.read(|view| Ok(view.alarms()?)).await;
    match alarms {
        Err(status) => return Some(status.message().to_owned()),
        Ok(alarms) => {
            if let Some(alarm) = alarms.first() {
                return Some(format!("ALARM {}", alarm.alarm().as_str_name()));
            }
        }
    }
    node.catch_up().await.err().map(|status| status.message().to_owned())
}

async fn health(State(node): State<Node>) -> impl IntoResponse {
    let reason = illness(&node).await;
    let code = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_healthy = reason.is_none();
    let text = serde_json::json!({ "health": is_healthy.to_string(), "reason": reason.unwrap_or_default() });
    (code, [(header::CONTENT_TYPE, "application/json")], text.to_string())
}

async fn ready(State(node): State<Node>) -> impl IntoResponse {
    match illness(&node).await {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn metrics(State(node): State<Node>) -> Result<String, (StatusCode, String)> {
    render(&node).await.map_err(|status| (StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", status.message())))
}

/// All metrics: the member's under etcd's names, and those of its database.
async fn render(node: &Node) -> Result<String, Status> {
    let (revision, compacted, leases) =
        node.read(|view| Ok((view.revision()?, view.compacted()?, view.leases()?.len()))).await?;
    let db = node.db().clone();
    let stats = blocking(move || db.stats()).await.map_err(failed)?.map_err(failed)?;
    let raft = node.raft().metrics().borrow_watched().clone();
    let is_leader = raft.current_leader == Some(raft.id);
    let applied = raft.last_applied.as_ref().map_or(0, |id| id.index);
    let last = raft.last_log_index.unwrap_or(0);
    let quota = node.options().quota_bytes.unwrap_or(0);
    let gauges = [
        ("etcd_server_has_leader", "Whether a leader is known.", f64::from(u8::from(node.has_leader()))),
        ("etcd_server_is_leader", "Whether this member leads.", f64::from(u8::from(is_leader))),
        ("etcd_server_proposals_pending", "Entries of raft's log that are not applied yet.", (last - applied) as f64),
        ("etcd_server_quota_backend_bytes", "The quota in bytes; 0 is none.", quota as f64),
        ("etcd_mvcc_db_total_size_in_bytes", "Bytes of the store's file.", stats.store.capacity_bytes as f64),
        ("etcd_debugging_mvcc_current_revision", "The store's revision.", revision as f64),
        ("etcd_debugging_mvcc_compact_revision", "The compacted revision; -1 is none.", compacted as f64),
        ("tantalum_server_leases", "Leases that are granted.", leases as f64),
        ("tantalum_server_raft_term", "Raft's term.", raft.current_term as f64),
    ];
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        for (name, meaning, value) in gauges {
            metrics::describe_gauge!(name, meaning);
            metrics::gauge!(name).set(value);
        }
        metrics::describe_counter!("etcd_server_proposals_applied_total", "Entries of raft's log that were applied.");
        metrics::counter!("etcd_server_proposals_applied_total").absolute(applied);
        stats.record_metrics("state")
    })
    .map_err(failed)?;
    Ok(recorder.handle().render())
}

fn failed(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}
