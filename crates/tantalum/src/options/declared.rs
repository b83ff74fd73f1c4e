//! Every setting, declared once: from this table come `tantalum.toml`, the setters of [`Builder`] and [`Expert`], the options of the
//! program `tantalum`, and the list [`SETTINGS`] that the documentation is tested against.

use std::{path::PathBuf, time::Duration};

use tantalum_device::toml::{Field, Problem, Table, Value};
use tantalum_log::LogLayout;
use tantalum_store::{MetadataWrites, PageCompression, PageStreams, StoreKind};

use super::{Barriers, Builder, Expert, Isolation, LogHiding, TornPageProtection};
use crate::{
    buffer::PageCleaning,
    error::{self, Result},
};

/// How a setting is written on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// A number of bytes.
    Bytes,
    /// A number.
    Number,
    /// `true` or `false`.
    Flag,
    /// A name out of a few.
    Name,
    /// A path.
    Path,
    /// One or more paths.
    Paths,
}

/// A setting: what can stand in `tantalum.toml`.
///
/// ```
/// let pool = tantalum::SETTINGS.iter().find(|setting| setting.name == "buffer_pool_bytes").expect("there is one");
/// assert_eq!((pool.default, pool.is_fixed), ("64 MiB", false));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key.
    pub name: &'static str,
    /// How it is written on a command line.
    pub kind: SettingKind,
    /// What it is when it is not set, in words.
    pub default: &'static str,
    /// Whether it is decided when the database is created; a later open with another value fails or does not change it.
    pub is_fixed: bool,
    /// Whether it is set through [`Builder::expert`].
    pub is_expert: bool,
    /// What it does, in Markdown.
    pub help: &'static str,
}

/// The type that has a setting's setter.
macro_rules! owner {
    (user) => {
        Builder
    };
    (expert) => {
        Expert
    };
}

/// A setting's setter, by its kind.
macro_rules! setter {
    ($owner:ident Path $name:ident $type:ty, $(#[$doc:meta])+) => {
        impl owner!($owner) {
            $(#[$doc])+
            pub fn $name(mut self, path: impl Into<PathBuf>) -> Self {
                self.settings_mut().$name = Some(path.into());
                self
            }
        }
    };
    ($owner:ident Paths $name:ident $type:ty, $(#[$doc:meta])+) => {
        impl owner!($owner) {
            $(#[$doc])+
            pub fn $name(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
                self.settings_mut().$name = Some(paths.into_iter().map(Into::into).collect());
                self
            }
        }
    };
    // Set as a `Duration`.
    ($owner:ident Number lock_timeout_ms $type:ty, $(#[$doc:meta])+) => {
        impl owner!($owner) {
            $(#[$doc])+
            pub fn lock_timeout(mut self, timeout: Duration) -> Self {
                self.settings_mut().lock_timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
                self
            }
        }
    };
    ($owner:ident $kind:ident $name:ident $type:ty, $(#[$doc:meta])+) => {
        impl owner!($owner) {
            $(#[$doc])+
            pub fn $name(mut self, value: $type) -> Self {
                self.settings_mut().$name = Some(value);
                self
            }
        }
    };
}

macro_rules! settings {
    ($(
        $(#[doc = $help:literal])+
        $owner:ident $time:ident $kind:ident $name:ident: $type:ty = $default:literal;
    )+) => {
        /// What `tantalum.toml` says; absent keys have their defaults.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Settings {
            $(
                pub $name: Option<$type>,
            )+
        }

        impl Settings {
            /// These settings, with those of `file` where they say nothing.
            pub fn over(self, file: Self) -> Self {
                Self { $($name: self.$name.or(file.$name),)+ }
            }

            /// Those of a file, or of a part of one.
            pub fn of_table(mut table: Table) -> std::result::Result<Self, Problem> {
                let settings = Self { $($name: table.take(stringify!($name))?,)+ };
                table.finish()?;
                Ok(settings)
            }

            /// A file's fields: those that are set.
            pub fn to_table(&self) -> std::result::Result<Table, String> {
                let mut table = Table::default();
                $(if let Some(value) = &self.$name {
                    table.put(stringify!($name), value)?;
                })+
                Ok(table)
            }

            /// Sets one of [`SETTINGS`].
            fn set_value(&mut self, name: &str, value: &Value) -> std::result::Result<(), String> {
                match name {
                    $(stringify!($name) => self.$name = Some(Field::from_value(value)?),)+
                    _ => return Err("there is no such setting".to_owned()),
                }
                Ok(())
            }
        }

        /// All settings.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            kind: SettingKind::$kind,
            default: $default,
            is_fixed: matches!(stringify!($time).as_bytes(), b"fixed"),
            is_expert: matches!(stringify!($owner).as_bytes(), b"expert"),
            help: concat!($($help, "\n"),+),
        }),+];

        $(setter! { $owner $kind $name $type, $(#[doc = $help])+ #[doc = ""] #[doc = concat!("Default: ", $default, ".")] })+
    };
}

settings! {
    /// Bytes of a page: 4096, 8192 or 16384. Fixed when the database is created.
    user fixed Bytes page_size: u32 = "4096";

    /// Bytes of memory for pages, at least 64 pages. A transaction's commit needs all the pages that it writes in the pool at the same
    /// time, those of large values too: three quarters of the pool at most, or all but 16 pages if that is more.
    ///
    /// The leaf hint cache takes 1.6 % as much memory beside it, 3.1 % if the number of pages is no power of two (of pages of
    /// 4096 bytes).
    user open Bytes buffer_pool_bytes: u64 = "64 MiB";

    /// The raw block device that holds the pages, instead of a file in the directory; a file that exists does too. Its end is the
    /// double-write area, its size the database's largest. A relative path starts at the directory.
    user fixed Path data_device: PathBuf = "the file `data`";

    /// Files or raw block devices that hold the log, in any order; missing files are created together with the database. Relative
    /// paths start at the directory.
    ///
    /// The database remembers where they are, and which came and went later ([`Db::add_log_device`](crate::Db::add_log_device)).
    /// Naming them again is needed only for those that were moved.
    user open Paths log_devices: Vec<PathBuf> = "the file `log-0`";

    /// Bytes to which the file `log-0` grows, of each other log file that is created, and used of each device of a
    /// [`DeviceOpener`](crate::DeviceOpener). It bounds recovery time, and the largest transaction: about a sixty-fourth of a partition,
    /// 2 MiB at most.
    user open Bytes log_bytes: u64 = "256 MiB";

    /// Into how many partitions each log device is cut; the log writes to all at the same time (FlashLogging, section 3 and Figure 17).
    /// More than one pay on a device that serves several durable writes at once in hardly more time than one, and make commits slower
    /// on others; `tantalum bench kv` tells. Fixed when the database is created.
    user fixed Number log_partitions: u32 = "1";

    /// On how many log devices, on different hardware, a commit must be before it is acknowledged: 1 or 2. With 2, losing any one log
    /// device loses nothing, and the database opens without it. While only one is left the log goes on with one copy and says so
    /// ([`LogStats::keeps_copies`](crate::LogStats::keeps_copies)). Can be changed from one open to the next.
    user open Number log_copies: u8 = "1";

    /// Where the whole log is kept once more, a little behind its end (FlashLogging, section 3.7): a directory, a raw block device, or
    /// a device of the [`DeviceOpener`](crate::DeviceOpener). It completes commits when it is faster than the log's devices, and keeps
    /// what checkpoints release. A relative path starts at the directory. A new archive begins when the database is opened with it.
    user open Path log_archive: PathBuf = "none";

    /// The oldest files of an archive in a directory are removed while all take more than this, except for what opening the database
    /// needs.
    user open Bytes log_archive_keep_bytes: u64 = "keep all";

    /// Files of an archive in a directory are removed when all that they hold is older than so many hours, except for what opening the
    /// database needs.
    user open Number log_archive_keep_hours: u64 = "keep all";

    /// How pages are stored: `in-place`, `in-page-logging` or `log-structured`. Fixed when the database is created.
    ///
    /// [`StoreKind::InPageLogging`] writes changes beside their page ("In-Page Logging", SIGMOD 2007): for flash without a translation
    /// layer, and devices on which small writes are dear. It keeps no redo in the log, so it cannot be archived.
    /// [`StoreKind::LogStructured`] appends pages in large writes and cleans up behind itself: for devices on which writes anywhere cost
    /// much more than sequential writes.
    user fixed Name page_store: StoreKind = "`in-place`";

    /// The isolation of [`Db::begin`](crate::Db::begin): `serializable` or `snapshot-isolation`.
    user open Name isolation: Isolation = "`serializable`";

    /// How long a transaction waits for a lock before it fails with [`LockTimeout`](crate::ErrorKind::LockTimeout); in
    /// `tantalum.toml`, milliseconds. Deadlocks are found at once, whatever the value.
    user open Number lock_timeout_ms: u64 = "10,000";

    /// Bytes of memory for the writes of one transaction, with their locks and what undoes them. A transaction that writes more keeps
    /// the rest on the data device until it commits ([`Transaction`](crate::Transaction)).
    user open Bytes transaction_memory_bytes: u64 = "64 MiB";

    /// Bytes of memory for old versions of rows that snapshots see, at least 16 KiB. What exceeds it goes to free pages of the data
    /// device while the snapshots live. Beyond it may be what one transaction overwrites.
    expert open Bytes version_bytes: u64 = "a quarter of the pool";

    /// Bytes of rows in change buffers, at most: of writes whose leaves were not in memory when they were committed, and which are moved to
    /// their table later, many to a leaf. They lie on the data device, where they take up to twice as much; they are never more than half
    /// of the data file. 0: a commit reads all leaves that it writes to.
    expert open Bytes change_buffer_bytes: u64 = "twice the pool";

    /// Bytes of memory for what recovery changes of a database that is opened for [reading only](Builder::read_only): pages that the
    /// buffer pool has no room for, and a little beside them. At most what the process that crashed had changed in its pool.
    expert open Bytes read_only_memory_bytes: u64 = "1 GiB";

    /// What happens to log writes that take more than twice as long as usual: `on`, another device writes the same; `off`, the
    /// committing thread waits on. It makes a difference only where the log stands on several devices. A database that was created
    /// with `on` has areas set aside for it on its log devices.
    expert open Name log_hiding: LogHiding = "`on`";

    /// Bytes with which the log's file begins. Larger files take its place in the background, up to [`log_bytes`](Builder::log_bytes),
    /// when it fills by half more than once a minute, or for a transaction that it cannot take. With more than half of `log_bytes` it has
    /// its full size from the beginning; so have devices that [`log_devices`](Builder::log_devices) names.
    expert open Bytes log_initial_bytes: u64 = "1 MiB for each partition";

    /// Whether a commit that could be written at once waits briefly for those that follow what the last write completed (adaptive
    /// group-commit delay): for less than half of what a write takes, and only where others do come. Without it, a few clients that
    /// commit one transaction after the other often wait for two writes each.
    expert open Flag log_gather: bool = "`true`";

    /// Whether each commit that finds its records in no log request yet makes one of its own at once, as FlashLogging does (section
    /// 3.5), instead of sharing one with all commits that come while no log device is free. For comparisons.
    expert open Flag log_request_per_flush: bool = "`false`";

    /// What was measured of the log devices: a file for each (`docs/use/devices.md#characteristics-files`), in the order of
    /// `log_devices`. Relative paths start at the directory. Without them, how long writes usually take is learnt from the writes.
    expert open Paths log_characteristics: Vec<PathBuf> = "learnt";

    /// How the log lies on its devices: as FlashLogging does, or in a layout to compare it with: `single` (one device, overlapping
    /// writes), or `striped:64KiB` (round robin, units of 512 B to 256 KiB). For comparisons. Fixed when the database is created.
    expert fixed Name log_layout: LogLayout = "`flash-logging`";

    /// Bytes of which each write to the log is a multiple: a power of two from 512, or the log devices' logical block, to 4096. In the
    /// comparison layouts the default is the logical block. Fixed when the database is created.
    ///
    /// Small blocks waste less on small commits; but where a device's physical block is larger, it rewrites earlier commits beside a
    /// write, and a power cut may then take those along.
    expert fixed Bytes log_block_bytes: u32 = "4096";

    /// How pages survive a power cut in the middle of their write: `auto`, `double-write`, `full-page-images`, `device` or
    /// `trust-device`. Except for full page images, which stay what they are, it can be
    /// changed from one open to the next.
    expert open Name torn_page_protection: TornPageProtection = "`auto`";

    /// Whether devices are told to flush their caches: `auto` (where they say that they need it), `on`, `off`, or `trust-device`
    /// (never, on the operator's word). Can be changed from one open to the next.
    expert open Name barriers: Barriers = "`auto`";

    /// Whether each page is made durable by a write of its own, as servers do that open their files with `O_DSYNC`, instead of many
    /// pages by one flush. For comparisons; without barriers it makes no difference but that neighbours are not written together.
    expert open Flag durable_page_writes: bool = "`false`";

    /// Which task writes dirty pages to make room: the cleaner `ahead` of need, or `on-demand` the task that reads a page.
    /// For comparisons. Can be changed from one open to the next.
    expert open Name page_cleaning: PageCleaning = "`ahead`";

    /// How many batches of dirty pages may be on their way to the page store at a time, 1 to 128; the batches of `on-demand` page
    /// cleaning, whose default is 128, have a page each. Together they take at most a quarter of the buffer pool's size. Can be changed
    /// from one open to the next; without meaning for the page store in-page-logging.
    expert open Number write_back_batches: u32 = "4";

    /// With in-page-logging: bytes of an erase unit, a power of two, and on raw flash a multiple of its erase block. Fixed when the
    /// database is created.
    expert fixed Bytes erase_unit_bytes: u32 = "128 KiB";

    /// With in-page-logging: bytes of each erase unit that are for log sectors, whole pages. A larger region means fewer merges and
    /// room for fewer pages. Fixed when the database is created.
    expert fixed Bytes log_region_bytes: u32 = "16 logical blocks, at most half a unit";

    /// With in-page-logging: how many of a unit's log sectors, in percent, a merge may carry over because their change groups are not
    /// committed yet; with more, sectors go to an overflow unit ("In-Page Logging", section 5.3).
    expert open Number carry_over_percent: u32 = "50";

    /// With log-structured: bytes of a segment, a multiple of the page size, of 8 pages to 2 GiB; on a device with zones, those of a zone.
    /// The longer they are, the coarser is cleaning, and the more is read to open after a crash. Fixed when the database is created.
    expert fixed Bytes segment_bytes: u32 = "1 MiB, or a zone";

    /// With log-structured: how much of all segments live pages may take, in percent: 10 to 95. A file grows before more are. The
    /// fuller, the more cleaning has to move for each page that is stored. Fixed when the database is created.
    expert fixed Number segment_fill_percent: u32 = "80";

    /// With log-structured: whether the store tells a device which segments it does not need: a trim for an SSD; nothing for a file.
    expert open Flag discard_segments: bool = "`false`";

    /// With log-structured: which pages are kept apart in segments of their own: `two`, those that cleaning moves, which have not changed
    /// for a while; `one`, none, so that a drive is written one segment after the other, which suits SSDs without placement handles if
    /// `segment_bytes` is several times what they erase at a time and `discard_segments` is on; `by-lifetime`, those that are expected to be
    /// stored again soon, later, and hardly ever, if there are enough segments (about 170 with the other settings as they are), which suits
    /// drives with placement handles. Can be changed from one open to the next; once it was `by-lifetime`, older versions refuse the
    /// database.
    expert open Name page_streams: PageStreams = "`two`";

    /// With log-structured: how pages are compressed where that saves an eighth of one or more: `none`, or `lz4`. Fewer bytes are
    /// written then, and less has to be moved by cleaning, since the store has room for as many pages as without; for processor time at
    /// each page that is stored or read. Can be changed from one open to the next: pages stay as they are until they are stored again.
    expert open Name page_compression: PageCompression = "`none`";

    /// With log-structured: what is written beside pages: `own` (what the store needs), or `nilfs2` (as much as that file system
    /// wrote). For comparisons.
    expert open Name metadata_writes: MetadataWrites = "`own`";

    /// Whether a committing transaction releases its locks before its log record is durable. No commit is acknowledged before it is
    /// durable: a transaction that reads its writes waits for it at the end.
    expert open Flag early_lock_release: bool = "`true`";

    /// Whether the database takes orders at the socket `control.sock` in its directory, from processes of the same user
    /// ([`control`](crate::control)). The program `tantalum` looks at an open database and changes its log's devices that way.
    user open Flag control_socket: bool = "`false`";
}

impl Settings {
    /// Sets one by its name, as a command line or a file has it.
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        let refused = |what: String| error::option(format!("{name}: {what}"));
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| refused("there is no such setting".into()))?;
        let value = match setting.kind {
            SettingKind::Bytes | SettingKind::Number => match text.parse() {
                Ok(number) => Value::Integer(number),
                Err(_) => return Err(refused(format!("{text:?} is no number"))),
            },
            SettingKind::Flag => match text.parse() {
                Ok(flag) => Value::Flag(flag),
                Err(_) => return Err(refused(format!("{text:?} is neither true nor false"))),
            },
            SettingKind::Name | SettingKind::Path => Value::Text(text.into()),
            SettingKind::Paths => {
                let before = self.paths(name).into_iter().flatten();
                let paths = before.map(|path| path.display().to_string()).chain([text.into()]);
                Value::List(paths.map(Value::Text).collect())
            }
        };
        self.set_value(name, &value).map_err(refused)
    }

    fn paths(&self, name: &str) -> Option<&Vec<PathBuf>> {
        match name {
            "log_devices" => self.log_devices.as_ref(),
            "log_characteristics" => self.log_characteristics.as_ref(),
            _ => None,
        }
    }
}
