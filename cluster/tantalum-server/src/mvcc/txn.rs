//! A transaction of etcd's: all comparisons and checks look at the store as it was before, then the operations run one after another.

use std::cmp::Ordering;

use super::range::{check_revision, range};
use super::rows::Keys;
use super::view::{Fetch, View};
use super::writer::Writer;
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::etcdserverpb::request_op::Request;
use crate::api::etcdserverpb::response_op::Response;
use crate::api::mvccpb::KeyValue;
use crate::refusal::{Failed, Refusal};

/// Which way a transaction goes, and those inside of it that it comes to, in their order.
struct Path {
    succeeded: bool,
    inner: Vec<Path>,
}

/// Whether a transaction only reads.
pub fn is_read_only(request: &pb::TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.all(|operation| matches!(operation.request, Some(Request::RequestRange(_))))
}

/// Whether a transaction only reads, and may do so from what this member has.
pub fn is_serializable(request: &pb::TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.all(|operation| matches!(&operation.request, Some(Request::RequestRange(range)) if range.serializable))
}

/// Whether a transaction may put.
pub fn puts(request: &pb::TxnRequest) -> bool {
    request.success.iter().chain(&request.failure).any(|operation| match &operation.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(inner)) => puts(inner),
        _ => false,
    })
}

/// Runs a transaction that only [reads](is_read_only).
pub fn read(view: View<'_>, request: &pb::TxnRequest) -> Result<pb::TxnResponse, Failed> {
    let current = view.revision()?;
    let path = choose(view, request)?;
    check(view, request, &path)?;
    let mut responses = Vec::new();
    for operation in operations(request, &path) {
        let response = match &operation.request {
            Some(Request::RequestRange(request)) => Some(Response::ResponseRange(range(view, request, current)?)),
            _ => None,
        };
        responses.push(pb::ResponseOp { response });
    }
    Ok(pb::TxnResponse { header: header(current), succeeded: path.succeeded, responses })
}

/// Runs a transaction. If it is refused, nothing was written.
pub fn run(writer: &mut Writer<'_>, request: &pb::TxnRequest) -> Result<pb::TxnResponse, Failed> {
    let path = choose(writer.view(), request)?;
    check(writer.view(), request, &path)?;
    let mut response = execute(writer, request, &path)?;
    response.header = header(writer.revision());
    Ok(response)
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

fn operations<'r>(request: &'r pb::TxnRequest, path: &Path) -> &'r [pb::RequestOp] {
    if path.succeeded { &request.success } else { &request.failure }
}

fn choose(view: View<'_>, request: &pb::TxnRequest) -> Result<Path, Failed> {
    let mut path = Path { succeeded: true, inner: Vec::new() };
    for compare in &request.compare {
        if !holds(view, compare)? {
            path.succeeded = false;
            break;
        }
    }
    for operation in operations(request, &path) {
        if let Some(Request::RequestTxn(inner)) = &operation.request {
            let inner = choose(view, inner)?;
            path.inner.push(inner);
        }
    }
    Ok(path)
}

/// Whether all keys of a comparison are as it says. A key that is not there has numbers of 0, and no value.
fn holds(view: View<'_>, compare: &pb::Compare) -> Result<bool, Failed> {
    let is_of_values = compare.target() == CompareTarget::Value;
    let fetch = if is_of_values { Fetch::Values } else { Fetch::Keys };
    let found = view.range(&Keys::new(&compare.key, &compare.range_end), 0, fetch)?.key_values;
    if found.is_empty() {
        return Ok(!is_of_values && is_as(compare, &KeyValue::default()));
    }
    Ok(found.iter().all(|key_value| is_as(compare, key_value)))
}

fn is_as(compare: &pb::Compare, key_value: &KeyValue) -> bool {
    let given = compare.target_union.as_ref();
    let ordering = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Value) => {
            let value =
                given.and_then(|given| if let TargetUnion::Value(value) = given { Some(&value[..]) } else { None });
            key_value.value[..].cmp(value.unwrap_or_default())
        }
        Ok(CompareTarget::Version) => key_value.version.cmp(&match given {
            Some(TargetUnion::Version(version)) => *version,
            _ => 0,
        }),
        Ok(CompareTarget::Create) => key_value.create_revision.cmp(&match given {
            Some(TargetUnion::CreateRevision(revision)) => *revision,
            _ => 0,
        }),
        Ok(CompareTarget::Mod) => key_value.mod_revision.cmp(&match given {
            Some(TargetUnion::ModRevision(revision)) => *revision,
            _ => 0,
        }),
        Ok(CompareTarget::Lease) => key_value.lease.cmp(&match given {
            Some(TargetUnion::Lease(lease)) => *lease,
            _ => 0,
        }),
        Err(_) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering == Ordering::Equal,
        Ok(CompareResult::NotEqual) => ordering != Ordering::Equal,
        Ok(CompareResult::Greater) => ordering == Ordering::Greater,
        Ok(CompareResult::Less) => ordering == Ordering::Less,
        Err(_) => true,
    }
}

/// Whether all operations on the path can be done. As in etcd, what is wrong with a put is told before what is wrong with a range.
fn check(view: View<'_>, request: &pb::TxnRequest, path: &Path) -> Result<(), Failed> {
    each_on_path(request, path, &mut |operation| match operation {
        Request::RequestPut(put) => {
            check_previous(view, put)?;
            check_lease(view, put)
        }
        _ => Ok(()),
    })?;
    each_on_path(request, path, &mut |operation| match operation {
        Request::RequestRange(range) => check_range(view, range),
        _ => Ok(()),
    })
}

/// Calls `check` with each operation that is done, also in transactions within.
fn each_on_path(
    request: &pb::TxnRequest,
    path: &Path,
    check: &mut dyn FnMut(&Request) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut inner = path.inner.iter();
    for operation in operations(request, path).iter().filter_map(|operation| operation.request.as_ref()) {
        match (operation, inner.as_slice()) {
            (Request::RequestTxn(request), [path, ..]) => {
                inner.next();
                each_on_path(request, path, check)?;
            }
            _ => check(operation)?,
        }
    }
    Ok(())
}

/// Whether the history has what a range asks for. Within a transaction, etcd takes a negative revision for one of the past.
fn check_range(view: View<'_>, request: &pb::RangeRequest) -> Result<(), Failed> {
    if request.revision < 0 && request.revision < view.compacted()? {
        return Err(Refusal::Compacted.into());
    }
    check_revision(view, request, view.revision()?)
}

/// Whether a put by itself can be done. etcd looks at the lease first; in a transaction, at the key.
pub fn check_put(view: View<'_>, request: &pb::PutRequest) -> Result<(), Failed> {
    check_lease(view, request)?;
    check_previous(view, request)
}

fn check_lease(view: View<'_>, request: &pb::PutRequest) -> Result<(), Failed> {
    match request.lease != 0 && view.lease_ttl_s(request.lease)?.is_none() {
        true => Err(Refusal::LeaseNotFound.into()),
        false => Ok(()),
    }
}

fn check_previous(view: View<'_>, request: &pb::PutRequest) -> Result<(), Failed> {
    match (request.ignore_value || request.ignore_lease) && view.key_meta(&request.key)?.is_none() {
        true => Err(Refusal::KeyNotFound.into()),
        false => Ok(()),
    }
}

fn execute(writer: &mut Writer<'_>, request: &pb::TxnRequest, path: &Path) -> Result<pb::TxnResponse, Failed> {
    let mut inner = path.inner.iter();
    let mut responses = Vec::new();
    for operation in operations(request, path) {
        let response = match &operation.request {
            Some(Request::RequestRange(request)) => {
                Some(Response::ResponseRange(range(writer.view(), request, writer.revision())?))
            }
            Some(Request::RequestPut(request)) => Some(Response::ResponsePut(put(writer, request)?)),
            Some(Request::RequestDeleteRange(request)) => {
                Some(Response::ResponseDeleteRange(delete_range(writer, request)?))
            }
            Some(Request::RequestTxn(request)) => match inner.next() {
                Some(path) => Some(Response::ResponseTxn(execute(writer, request, path)?)),
                None => None,
            },
            None => None,
        };
        responses.push(pb::ResponseOp { response });
    }
    Ok(pb::TxnResponse { header: header(0), succeeded: path.succeeded, responses })
}

/// Puts, after [`check_put`].
pub fn put(writer: &mut Writer<'_>, request: &pb::PutRequest) -> Result<pb::PutResponse, Failed> {
    let needs_previous = request.ignore_value || request.ignore_lease || request.prev_kv;
    let previous = if needs_previous { writer.view().get(&request.key)? } else { None };
    let value = match &previous {
        Some(previous) if request.ignore_value => previous.value.clone(),
        _ => request.value.clone(),
    };
    let lease = match &previous {
        Some(previous) if request.ignore_lease => previous.lease,
        _ => request.lease,
    };
    let revision = writer.put(&request.key, value, lease)?;
    Ok(pb::PutResponse { header: header(revision), prev_kv: previous.filter(|_| request.prev_kv) })
}

/// Deletes.
pub fn delete_range(
    writer: &mut Writer<'_>,
    request: &pb::DeleteRangeRequest,
) -> Result<pb::DeleteRangeResponse, Failed> {
    let keys = Keys::new(&request.key, &request.range_end);
    let prev_kvs = match request.prev_kv {
        true => writer.view().range(&keys, 0, Fetch::Values)?.key_values,
        false => Vec::new(),
    };
    let deleted = writer.delete_range(&keys)?;
    Ok(pb::DeleteRangeResponse { header: header(writer.revision()), deleted, prev_kvs })
}
