//! A range request: which keys, filtered, sorted and cut off as etcd does.

use super::rows::Keys;
use super::view::{Fetch, View};
use crate::api::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::api::etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader};
use crate::api::mvccpb::KeyValue;
use crate::refusal::{Failed, Refusal};

/// Whether the history has what a request asks for, while the store is at revision `current`.
pub fn check_revision(view: View<'_>, request: &RangeRequest, current: i64) -> Result<(), Failed> {
    if request.revision > current {
        return Err(Refusal::FutureRevision.into());
    }
    let wanted = if request.revision <= 0 { current } else { request.revision };
    if wanted < view.compacted()? {
        return Err(Refusal::Compacted.into());
    }
    Ok(())
}

/// Answers a request while the store is at revision `current`.
pub fn range(view: View<'_>, request: &RangeRequest, current: i64) -> Result<RangeResponse, Failed> {
    check_revision(view, request, current)?;
    let keys = Keys::new(&request.key, &request.range_end);
    let (target, order) = (request.sort_target(), request.sort_order());
    let is_by_key = order == SortOrder::None || (target, order) == (SortTarget::Key, SortOrder::Ascend);
    let limit = usize::try_from(request.limit).unwrap_or(0);
    // One more tells whether there are more.
    let read = if is_by_key && !is_filtered(request) && limit > 0 { limit.saturating_add(1) } else { 0 };
    let fetch = match request.count_only {
        true => Fetch::Count,
        false if request.keys_only && target != SortTarget::Value => Fetch::Keys,
        false => Fetch::Values,
    };
    let mut found = match request.revision {
        past if past > 0 && past < current => view.range_at(&keys, past, read, fetch)?,
        _ => view.range(&keys, read, fetch)?,
    };
    found.key_values.retain(|key_value| is_within(request, key_value));
    sort(&mut found.key_values, target, order);
    let more = limit > 0 && found.key_values.len() > limit;
    if more {
        found.key_values.truncate(limit);
    }
    if request.keys_only {
        found.key_values.iter_mut().for_each(|key_value| key_value.value.clear());
    }
    let header = Some(ResponseHeader { revision: current, ..Default::default() });
    Ok(RangeResponse { header, kvs: found.key_values, more, count: found.count })
}

fn is_filtered(request: &RangeRequest) -> bool {
    let RangeRequest { min_mod_revision, max_mod_revision, min_create_revision, max_create_revision, .. } = *request;
    [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] != [0; 4]
}

fn is_within(request: &RangeRequest, key_value: &KeyValue) -> bool {
    let within = |min: i64, max: i64, revision: i64| (min == 0 || revision >= min) && (max == 0 || revision <= max);
    within(request.min_mod_revision, request.max_mod_revision, key_value.mod_revision)
        && within(request.min_create_revision, request.max_create_revision, key_value.create_revision)
}

fn sort(key_values: &mut [KeyValue], target: SortTarget, order: SortOrder) {
    match target {
        // They come in this order.
        SortTarget::Key => {}
        SortTarget::Version => key_values.sort_by_key(|key_value| key_value.version),
        SortTarget::Create => key_values.sort_by_key(|key_value| key_value.create_revision),
        SortTarget::Mod => key_values.sort_by_key(|key_value| key_value.mod_revision),
        SortTarget::Value => key_values.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if order == SortOrder::Descend {
        key_values.reverse();
    }
}
