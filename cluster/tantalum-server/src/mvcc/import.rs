//! A store that begins with what another has, event by event.

use tantalum::{Result, Table, Transaction};

use super::rows::{
    COMPACTED, Event, HISTORY, KEYS, KeyMeta, LEASE_KEYS, LEASES, META, REVISION, REVISIONS, escape, history_key,
    history_row, lease_key,
};

/// Adds an event, after those of earlier revisions.
pub fn add_event(transaction: &mut Transaction, tables: &[Table], event: &Event) -> Result<()> {
    let Event { revision, is_delete, key_value } = event;
    let row = Event::encode(*is_delete, key_value);
    transaction.put(&tables[REVISIONS], revision.to_bytes(), row)?;
    let history_key = history_key(&escape(&key_value.key), *revision);
    transaction.put(&tables[HISTORY], history_key, history_row(*is_delete))?;
    let key = &key_value.key;
    let before = transaction.get(&tables[KEYS], key)?.map(|row| KeyMeta::decode(&row)).transpose()?;
    if let Some(KeyMeta { lease, .. }) = before.filter(|meta| meta.lease != 0) {
        transaction.delete(&tables[LEASE_KEYS], lease_key(lease, key))?;
    }
    if *is_delete {
        transaction.delete(&tables[KEYS], key)?;
        return Ok(());
    }
    let meta = KeyMeta {
        revision: *revision,
        create_revision: key_value.create_revision,
        version: key_value.version,
        lease: key_value.lease,
    };
    transaction.put(&tables[KEYS], key, meta.encode())?;
    if meta.lease != 0 {
        transaction.put(&tables[LEASE_KEYS], lease_key(meta.lease, key), "")?;
    }
    Ok(())
}

/// Says how far the store is, what is compacted, and which leases there are, with their seconds. What compaction gave up is looked for
/// again.
pub fn finish(
    transaction: &mut Transaction,
    tables: &[Table],
    last: i64,
    compacted: Option<i64>,
    leases: &[(i64, i64)],
) -> Result<()> {
    transaction.put(&tables[META], REVISION, last.to_be_bytes())?;
    if let Some(compacted) = compacted {
        transaction.put(&tables[META], COMPACTED, compacted.to_be_bytes())?;
    }
    for (id, ttl_s) in leases {
        transaction.put(&tables[LEASES], id.to_be_bytes(), ttl_s.to_be_bytes())?;
    }
    Ok(())
}
