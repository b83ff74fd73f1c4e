//! Settings, databases and tables.

use std::{ffi::c_char, mem::MaybeUninit};

use tantalum::{Builder, Db, Error, ErrorKind, Table};

use crate::{
    bytes::{give, give_handle, name, path, tantalum_buffer},
    status::{Stop, end, guarded, needed, tantalum_code},
};

/// Settings for tantalum_open(). Ended by tantalum_options_free().
#[derive(Debug, Default)]
pub struct tantalum_options {
    settings: Vec<(String, String)>,
    refuses_to_create: bool,
    is_read_only: bool,
}

/// An open database. Ended by tantalum_close().
#[derive(Debug)]
pub struct tantalum_db {
    pub(crate) db: Db,
}

/// A table of a database: an ordered map from keys to values, both any bytes. Ended by tantalum_table_free(), before or after
/// its database is closed.
#[derive(Debug)]
pub struct tantalum_table {
    pub(crate) table: Table,
}

impl tantalum_options {
    fn builder(&self) -> Result<Builder, Error> {
        let builder = Db::builder().create_if_missing(!self.refuses_to_create).read_only(self.is_read_only);
        self.settings.iter().try_fold(builder, |builder, (name, value)| builder.set(name, value))
    }
}

/// Makes options with which tantalum_open() does what it does without any: settings are those of `tantalum.toml` in the
/// database's directory, or the defaults.
///
/// Returns TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_options_new(options: Option<&mut MaybeUninit<*mut tantalum_options>>) -> tantalum_code {
    guarded(|| {
        give_handle(needed(options, "options is null")?, tantalum_options::default());
        Ok(())
    })
}

/// Ends options. Databases that were opened with them stay as they are. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_options_free(options: Option<Box<tantalum_options>>) {
    end(options);
}

/// Sets a setting, by the name and with the value that it has in `tantalum.toml`: "buffer_pool_bytes", "16777216". A path is
/// added to those that were given before, where a setting has several. Both texts are copied.
///
/// Returns TANTALUM_INVALID_INPUT for a name that is none, or a value that it cannot have; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_options_set(
    options: Option<&mut tantalum_options>,
    setting: *const c_char,
    value: *const c_char,
) -> tantalum_code {
    guarded(|| {
        let options = needed(options, "options is null")?;
        let (setting, value) = (name(setting, "setting is null")?, name(value, "value is null")?);
        let _is_one = Db::builder().set(setting, value)?;
        options.settings.push((setting.to_owned(), value.to_owned()));
        Ok(())
    })
}

/// Whether a database that is not there is created; without this call, it is.
///
/// Returns TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_options_create_if_missing(
    options: Option<&mut tantalum_options>,
    create: bool,
) -> tantalum_code {
    guarded(|| {
        needed(options, "options is null")?.refuses_to_create = !create;
        Ok(())
    })
}

/// Whether the database is opened for reading only; without this call, it is not. Several processes may read at a time.
///
/// Returns TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_options_read_only(options: Option<&mut tantalum_options>, read_only: bool) -> tantalum_code {
    guarded(|| {
        needed(options, "options is null")?.is_read_only = read_only;
        Ok(())
    })
}

/// Opens the database in the directory `directory`, or creates it. `options` may be NULL, and can be used again or ended
/// afterwards. After a crash this recovers the database. A process opens a database once and shares the handle among threads.
///
/// Returns TANTALUM_IN_USE when another process has it open, or this one; TANTALUM_INVALID_INPUT for settings that cannot be;
/// TANTALUM_NOT_FOUND, TANTALUM_MISSING, TANTALUM_CORRUPT and others for what recovery finds; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_open(
    directory: *const c_char,
    options: Option<&tantalum_options>,
    db: Option<&mut MaybeUninit<*mut tantalum_db>>,
) -> tantalum_code {
    guarded(|| {
        let db = needed(db, "db is null")?;
        let builder = options.map_or_else(|| Ok(Db::builder()), tantalum_options::builder)?;
        give_handle(db, tantalum_db { db: builder.open(path(directory)?)? });
        Ok(())
    })
}

/// Closes a database and ends its handle, whatever is returned. Commits that are under way in other threads are waited for;
/// what else is open fails with TANTALUM_CLOSED from then on, and is still to be ended. The database can be opened again when
/// this returns.
///
/// Returns TANTALUM_IO and others when a device cannot write: commits that were acknowledged are safe in the log all the same.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_close(db: Option<Box<tantalum_db>>) -> tantalum_code {
    guarded(|| Ok(db.map_or(Ok(()), |db| db.db.close())?))
}

/// Opens the table `table_name`, and creates it if there is none. The name is UTF-8, and copied.
///
/// Returns TANTALUM_READ_ONLY if it is to be created in a database that is open for reading only; TANTALUM_INVALID_INPUT for a
/// name that is none; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_table_open_or_create(
    db: Option<&tantalum_db>,
    table_name: *const c_char,
    table: Option<&mut MaybeUninit<*mut tantalum_table>>,
) -> tantalum_code {
    open_table(db, table_name, table, Db::table)
}

/// Opens the table `table_name`.
///
/// Returns TANTALUM_NOT_FOUND if there is none; TANTALUM_CLOSED; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_table_open(
    db: Option<&tantalum_db>,
    table_name: *const c_char,
    table: Option<&mut MaybeUninit<*mut tantalum_table>>,
) -> tantalum_code {
    open_table(db, table_name, table, Db::open_table)
}

/// Creates the table `table_name`, durably.
///
/// Returns TANTALUM_ALREADY_EXISTS if there is one; otherwise as tantalum_table_open_or_create().
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_table_create(
    db: Option<&tantalum_db>,
    table_name: *const c_char,
    table: Option<&mut MaybeUninit<*mut tantalum_table>>,
) -> tantalum_code {
    open_table(db, table_name, table, Db::create_table)
}

fn open_table(
    db: Option<&tantalum_db>,
    table_name: *const c_char,
    table: Option<&mut MaybeUninit<*mut tantalum_table>>,
    open: fn(&Db, &str) -> tantalum::Result<Table>,
) -> tantalum_code {
    guarded(|| {
        let (db, table) = (needed(db, "db is null")?, needed(table, "table is null")?);
        give_handle(table, tantalum_table { table: open(&db.db, name(table_name, "table_name is null")?)? });
        Ok(())
    })
}

/// Ends a table's handle. The table stays. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_table_free(table: Option<Box<tantalum_table>>) {
    end(table);
}

/// Drops the table `table_name` with all its rows, durably. Waits for transactions and snapshots that use it.
///
/// Returns TANTALUM_NOT_FOUND if there is none; TANTALUM_READ_ONLY; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_table_drop(db: Option<&tantalum_db>, table_name: *const c_char) -> tantalum_code {
    guarded(|| Ok(needed(db, "db is null")?.db.drop_table(name(table_name, "table_name is null")?)?))
}

/// The names of all tables, as a JSON list of texts, in `names`.
///
/// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_tables_json(
    db: Option<&tantalum_db>,
    names: Option<&mut MaybeUninit<tantalum_buffer>>,
) -> tantalum_code {
    guarded(|| {
        let tables = needed(db, "db is null")?.db.tables()?;
        give(needed(names, "names is null")?, in_json(serde_json::to_vec(&tables))?);
        Ok(())
    })
}

/// The statistics as a JSON object, in `stats`: what the database is, and what was counted since it was opened. Its fields are those
/// of `tantalum db stat --json`.
///
/// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_stats_json(
    db: Option<&tantalum_db>,
    stats: Option<&mut MaybeUninit<tantalum_buffer>>,
) -> tantalum_code {
    guarded(|| {
        let counted = needed(db, "db is null")?.db.stats()?;
        give(needed(stats, "stats is null")?, in_json(serde_json::to_vec(&counted))?);
        Ok(())
    })
}

fn in_json(json: serde_json::Result<Vec<u8>>) -> Result<tantalum_buffer, Stop> {
    let refused =
        |error: serde_json::Error| Error::new(ErrorKind::Unsupported, format!("no JSON can be made: {error}"));
    Ok(tantalum_buffer::of(&json.map_err(refused)?))
}

/// Copies the state of one moment into a new database in the directory `directory`, which is created. Transactions go on.
///
/// Returns TANTALUM_ALREADY_EXISTS if something is there; TANTALUM_NO_SPACE; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device
/// reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_backup(db: Option<&tantalum_db>, directory: *const c_char) -> tantalum_code {
    guarded(|| Ok(needed(db, "db is null")?.db.backup(path(directory)?)?))
}

/// Makes recovery after a crash shorter: what the log holds up to now need not be repeated. The database does so by itself.
///
/// Returns TANTALUM_READ_ONLY; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_checkpoint(db: Option<&tantalum_db>) -> tantalum_code {
    guarded(|| Ok(needed(db, "db is null")?.db.checkpoint()?))
}
