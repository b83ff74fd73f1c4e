//! Leases and alarms, as rows. When a lease has expired is the leader's to know (`crate::lease`); here it is made and ended.

use tantalum::{Prefix, Result, Table, Transaction};

use super::rows::{ALARMS, Keys, LEASE_KEYS, LEASES, damaged, number};
use super::view::View;
use super::writer::Writer;
use crate::api::etcdserverpb::alarm_request::AlarmAction;
use crate::api::etcdserverpb::{AlarmMember, AlarmRequest, AlarmType};
use crate::refusal::{Failed, Refusal};

/// Longest time to live, in seconds, as in etcd.
const MAX_TTL_S: i64 = 9_000_000_000;

/// Makes a lease.
pub fn grant(transaction: &mut Transaction, tables: &[Table], id: i64, ttl_s: i64) -> Result<(), Failed> {
    if ttl_s > MAX_TTL_S {
        return Err(Refusal::LeaseTtlTooLarge.into());
    }
    if (View { transaction, tables }).lease_ttl_s(id)?.is_some() {
        return Err(Refusal::LeaseExists.into());
    }
    Ok(transaction.put(&tables[LEASES], id.to_be_bytes(), ttl_s.to_be_bytes())?)
}

/// Ends a lease, and deletes its keys. Returns the revision.
pub fn revoke(transaction: &mut Transaction, tables: &[Table], id: i64) -> Result<i64, Failed> {
    let view = View { transaction, tables };
    if view.lease_ttl_s(id)?.is_none() {
        return Err(Refusal::LeaseNotFound.into());
    }
    let keys = view.lease_keys(id)?;
    transaction.delete(&tables[LEASES], id.to_be_bytes())?;
    let mut writer = Writer::begin(transaction, tables)?;
    for key in keys {
        writer.delete_range(&Keys::single(&key))?;
    }
    Ok(writer.finish()?)
}

/// Sets, resets or lists alarms.
pub fn alarm(transaction: &mut Transaction, tables: &[Table], request: &AlarmRequest) -> Result<Vec<AlarmMember>> {
    let alarm = AlarmMember { member_id: request.member_id, alarm: request.alarm };
    let mut key = alarm.member_id.to_be_bytes().to_vec();
    key.extend(alarm.alarm.to_be_bytes());
    let is_none = request.alarm() == AlarmType::None;
    match request.action() {
        AlarmAction::Get => {
            let alarms = View { transaction, tables }.alarms()?.into_iter();
            Ok(alarms.filter(|set| is_none || set.alarm == request.alarm).collect())
        }
        AlarmAction::Activate if is_none => Ok(Vec::new()),
        AlarmAction::Activate => {
            transaction.put(&tables[ALARMS], key, "")?;
            Ok(vec![alarm])
        }
        AlarmAction::Deactivate => Ok(Vec::from_iter(transaction.delete(&tables[ALARMS], key)?.then_some(alarm))),
    }
}

impl View<'_> {
    /// The leases with their times to live in seconds.
    pub fn leases(&self) -> Result<Vec<(i64, i64)>> {
        let rows = self.transaction.range(&self.tables[LEASES], ..)?;
        rows.map(|row| row.and_then(|(id, ttl_s)| Ok((number(&id, "a lease")?, number(&ttl_s, "a lease")?)))).collect()
    }

    /// The keys that a lease holds, in their order.
    pub fn lease_keys(&self, id: i64) -> Result<Vec<Vec<u8>>> {
        let rows = self.transaction.range(&self.tables[LEASE_KEYS], Prefix(id.to_be_bytes()))?;
        rows.map(|row| row.map(|(key, _)| key[8..].to_vec())).collect()
    }

    /// The alarms that are set.
    pub fn alarms(&self) -> Result<Vec<AlarmMember>> {
        let rows = self.transaction.range(&self.tables[ALARMS], ..)?;
        let decode = |row: Result<(tantalum::Value, tantalum::Value)>| {
            let (key, _) = row?;
            let (member, kind) = key.split_first_chunk().ok_or_else(|| damaged("an alarm", "it is too short"))?;
            let kind = kind.try_into().map_err(|_| damaged("an alarm", "its length is wrong"))?;
            Ok(AlarmMember { member_id: u64::from_be_bytes(*member), alarm: i32::from_be_bytes(kind) })
        };
        rows.map(decode).collect()
    }
}
