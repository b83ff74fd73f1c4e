//! What follows from what was found, each piece with its reason. docs/measure/probe.md explains the rules.

use serde::Serialize;
use tantalum_report::units::{bytes, duration_ns, number};

use super::{
    found::{Found, PageCost, StoreTimes},
    power::PowerSafe,
};

/// How a database should be set up on the device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Whether what the device says of its write cache can be true; `None` if nothing was written.
    pub power_safe: Option<PowerSafe>,
    /// The settings, in the order of `tantalum.toml`.
    pub recommendations: Vec<Recommendation>,
    /// What the page stores would cost with the recommended page.
    pub costs: Option<StoreCosts>,
}

/// A setting, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recommendation {
    /// The key of `tantalum.toml`.
    pub setting: &'static str,
    /// Its value, as TOML.
    pub value: String,
    /// The reason, with what was measured.
    pub why: String,
}

/// What writing a page back takes in each page store, in nanoseconds.
///
/// ```
/// use tantalum_lab::probe::StoreCosts;
///
/// let costs = StoreCosts { page_bytes: 4096, in_place_ns: 900.0, log_structured_ns: 300.0, in_page_logging_ns: 2000.0 };
/// assert_eq!(costs.cheapest(), "log-structured");
/// // What is about as good as the store that all else is simplest with does not take its place.
/// assert_eq!(StoreCosts { in_place_ns: 320.0, ..costs }.cheapest(), "in-place");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StoreCosts {
    /// Bytes of the page.
    pub page_bytes: u32,
    /// In place, protected against torn writes.
    pub in_place_ns: f64,
    /// Appended to a segment, cleaning included.
    pub log_structured_ns: f64,
    /// As log sectors, merges and what reading them takes included.
    pub in_page_logging_ns: f64,
}

/// Of the log-structured store, pages written for a page stored: segments cleaned in turn, pages written evenly, 80 % of the space
/// in use ("The Design and Implementation of a Log-Structured File System", section 3.4: u = 0.63 in the oldest segment). Cleaning
/// by cost and benefit does better where some pages are hotter than others.
const AMPLIFICATION: f64 = 2.7;
/// Of in-page logging, log sectors written for a page stored, and merges for a sector: TPC-C through the engine
/// (docs/results/in-page-logging.md).
const SECTORS_PER_PAGE: f64 = 1.7;
const MERGES_PER_SECTOR: f64 = 1.0 / 16.0;
const UNIT_BYTES: f64 = 131_072.0;
/// Of in-page logging, what it reads more for a page stored: 1.6 times as much, of two pages read for one written.
const MORE_READS: f64 = 1.2;
/// Another store must be this much cheaper than the one in place.
const MUST_GAIN: f64 = 0.9;
/// For a page that is written, so many are read.
const READS_PER_WRITE: f64 = 2.0;
/// A smaller page is taken if it costs no more than this times the best.
const NEARLY: f64 = 1.03;
/// Partitions pay while a write of one hardly waits for the others.
const HARDLY_LONGER: f64 = 1.25;
const PARTITIONS_MAX: u32 = 8;
/// Hiding pays if outliers take at least this part of all time spent in writes, and stand out by this factor.
const OUTLIERS_TIME: f64 = 0.01;
const OUTLIERS_FACTOR: f64 = 3.0;

impl StoreCosts {
    fn of(page: &PageCost, stores: &StoreTimes, is_atomic: bool) -> Self {
        let segment_pages = stores.segment_bytes as f64 / f64::from(page.bytes);
        let page_of_segment = stores.segment_read_ns / segment_pages;
        let unit_pages = UNIT_BYTES / f64::from(page.bytes);
        let merge = unit_pages * (page.append_ns + page_of_segment);
        Self {
            page_bytes: page.bytes,
            in_place_ns: if is_atomic { page.write_ns } else { page.double_write_ns },
            log_structured_ns: AMPLIFICATION * (page.append_ns + page_of_segment),
            in_page_logging_ns: SECTORS_PER_PAGE * (stores.sector_write_ns + MERGES_PER_SECTOR * merge)
                + MORE_READS * page.read_ns,
        }
    }

    /// The name of the store to take.
    pub fn cheapest(&self) -> &'static str {
        let others = [("log-structured", self.log_structured_ns), ("in-page-logging", self.in_page_logging_ns)];
        let (name, best) = if others[0].1 <= others[1].1 { others[0] } else { others[1] };
        if best < MUST_GAIN * self.in_place_ns { name } else { "in-place" }
    }

    fn best_ns(&self) -> f64 {
        self.in_place_ns.min(self.log_structured_ns).min(self.in_page_logging_ns)
    }
}

impl Advice {
    /// Says what follows. What was not measured has no recommendation.
    pub fn of(found: &Found) -> Self {
        let is_raw_flash = found.claims.erase_block_bytes > 0;
        let has_zones = found.claims.zone_bytes > 0;
        let (page_size, costs) = page_size(found).unzip();
        let mut recommendations: Vec<Recommendation> = page_size.into_iter().collect();
        match &costs {
            _ if is_raw_flash => recommendations.extend(raw_flash(found.claims.erase_block_bytes)),
            _ if has_zones => recommendations.extend(zones(found.claims.zone_bytes)),
            Some(costs) => recommendations.push(page_store(costs)),
            None => {}
        }
        match costs.as_ref().filter(|_| !is_raw_flash && !has_zones) {
            Some(costs) if costs.cheapest() == "in-place" => recommendations.push(protection(found, costs.page_bytes)),
            Some(costs) if costs.cheapest() == "log-structured" => recommendations.extend(segments(found)),
            _ => {}
        }
        recommendations.extend(log_partitions(found));
        recommendations.extend(log_hiding(found));
        Self { power_safe: PowerSafe::of(found), recommendations, costs }
    }

    /// The value recommended for a setting, as TOML.
    pub fn value(&self, setting: &str) -> Option<&str> {
        let found = self.recommendations.iter().find(|recommendation| recommendation.setting == setting);
        found.map(|recommendation| recommendation.value.as_str())
    }
}

/// Bytes of a segment at least: shorter ones have more summaries, and cleaning waits for the device more often.
const SEGMENT_LEAST: u64 = 1 << 20;
/// The largest erase unit that a probe looks for.
const LARGEST_UNIT: u64 = 16 << 20;
/// A device should have so many segments.
const SEGMENTS_OF_DEVICE: u64 = 64;
/// With so many, longer ones make cleaning hardly coarser.
const SEGMENTS_TO_CHOOSE_FROM: u64 = 256;
/// Placement handles for each of the six streams of pages, the map, and what is written over in its place: with fewer, streams share them.
const HANDLES_LEAST: u32 = 8;
/// The longest segment.
const SEGMENT_MOST: u64 = 2 << 30;
/// Segments that a log-structured store writes to by turns with two streams: of new pages, of moved ones, and of its map.
const OPEN_SEGMENTS: u32 = 3;

fn page_size(found: &Found) -> Option<(Recommendation, StoreCosts)> {
    let stores = found.stores.as_ref()?;
    let with_costs = |page: &PageCost| {
        let is_atomic = found.claims.atomic_write_bytes >= page.bytes;
        let costs = StoreCosts::of(page, stores, is_atomic);
        (page.bytes, READS_PER_WRITE * page.read_ns + costs.best_ns(), costs)
    };
    let all: Vec<_> = stores.pages.iter().map(with_costs).collect();
    let best = all.iter().map(|page| page.1).fold(f64::INFINITY, f64::min);
    let (page, _, costs) = *all.iter().find(|page| page.1 <= NEARLY * best)?;
    let each: Vec<_> = all.iter().map(|page| format!("{} for {}", time(page.1), bytes(page.0.into()))).collect();
    let why = format!(
        "two pages read and one written take {}; of pages that cost the same the smaller one keeps more of what is needed in memory",
        each.join(", ")
    );
    Some((Recommendation { setting: "page_size", value: page.to_string(), why }, costs))
}

fn raw_flash(erase_block_bytes: u32) -> [Recommendation; 2] {
    let why = "raw flash cannot be written over: changes go beside their page until a unit is erased".to_owned();
    let unit = erase_block_bytes.next_power_of_two();
    let of_device = format!("the device erases {} at once", bytes(erase_block_bytes.into()));
    [
        Recommendation { setting: "page_store", value: quoted("in-page-logging"), why },
        Recommendation { setting: "erase_unit_bytes", value: unit.to_string(), why: of_device },
    ]
}

fn zones(zone_bytes: u64) -> [Recommendation; 2] {
    let why =
        "the device has zones, which are written in order: pages are appended, and the log goes to another device"
            .to_owned();
    let of_device = format!("a zone has {}, and is a segment", bytes(zone_bytes));
    [
        Recommendation { setting: "page_store", value: quoted("log-structured"), why },
        Recommendation { setting: "segment_bytes", value: zone_bytes.to_string(), why: of_device },
    ]
}

fn page_store(costs: &StoreCosts) -> Recommendation {
    let why = format!(
        "writing back a page takes {} in place, {} appended to segments (each {} times, for cleaning at 80 % of the space), {} as \
         log sectors with their merges",
        time(costs.in_place_ns),
        time(costs.log_structured_ns),
        AMPLIFICATION,
        time(costs.in_page_logging_ns)
    );
    Recommendation { setting: "page_store", value: quoted(costs.cheapest()), why }
}

/// Segments of two erase units, so that the device finds most units of a segment that is free without live pages, and copies few. Where in a
/// unit a segment begins is not known, so one of them is shared with the segments before and after. With more, cleaning is coarser.
fn segments(found: &Found) -> Vec<Recommendation> {
    let capacity = found.claims.capacity_bytes;
    let (segment, why) = match found.erase_unit.bytes {
        Some(unit) => {
            let of_two = 2 * unit;
            let (units, why) = if of_two > SEGMENT_MOST {
                (1, "segments of two would be longer than the longest")
            } else if capacity / of_two < SEGMENTS_TO_CHOOSE_FROM {
                (1, "segments of two would be too few")
            } else {
                (2, "of two in a segment it copies little: only one is shared with others")
            };
            let why = format!("the device erases {} at once; {why}", bytes(unit));
            ((units * unit).max(SEGMENT_LEAST).next_multiple_of(unit), why)
        }
        None => {
            // A store needs enough segments to choose from.
            let most = capacity / SEGMENTS_OF_DEVICE;
            let segment = LARGEST_UNIT.min(1 << most.max(1).ilog2()).max(SEGMENT_LEAST);
            let why = format!(
                "{}; {} hold whole units of any usual size up to that, and whole units need no copying",
                found.erase_unit.why,
                bytes(segment)
            );
            (segment, why)
        }
    };
    let whole_units = Recommendation { setting: "segment_bytes", value: segment.to_string(), why };
    [whole_units].into_iter().chain(streams(found)).collect()
}

/// Pages are kept apart where the device keeps them apart too, and not at all where it bears less than what is the default.
fn streams(found: &Found) -> Vec<Recommendation> {
    let (value, why) = match (found.claims.placement_handles, found.open_units.limit) {
        (handles @ HANDLES_LEAST.., _) => (
            "by-lifetime",
            format!(
                "it keeps apart what is written with each of its {handles} placement handles, so pages that live as long go together"
            ),
        ),
        (_, Some(limit)) if limit < OPEN_SEGMENTS => (
            "one",
            format!("the store writes to {OPEN_SEGMENTS} segments by turns otherwise, and the device bears {limit}"),
        ),
        _ => return Vec::new(),
    };
    let discards = "a drive copies what it was not told of as if it were needed".to_owned();
    vec![
        Recommendation { setting: "page_streams", value: quoted(value), why },
        Recommendation { setting: "discard_segments", value: "true".to_owned(), why: discards },
    ]
}

fn protection(found: &Found, page_bytes: u32) -> Recommendation {
    let atomic = found.claims.atomic_write_bytes;
    let (value, why) = if atomic >= page_bytes {
        (
            "device",
            format!("it says that writes of up to {} are whole or absent after a power cut", bytes(atomic.into())),
        )
    } else if atomic > 0 {
        (
            "double-write",
            format!("it says that only writes of up to {} are whole after a power cut", bytes(atomic.into())),
        )
    } else {
        ("double-write", "no atomic writes are known of it, and only a power cut could show them".to_owned())
    };
    Recommendation { setting: "torn_page_protection", value: quoted(value), why }
}

fn log_partitions(found: &Found) -> Option<Recommendation> {
    let streams: Vec<_> = found.tasks.iter().filter_map(|row| Some((row.tasks, row.streams?))).collect();
    let alone = streams.iter().find(|(tasks, _)| *tasks == 1)?.1;
    let pays = |&&(tasks, streams): &&(u32, super::found::Streams)| {
        tasks <= PARTITIONS_MAX && streams.mean_ns <= HARDLY_LONGER * alone.mean_ns
    };
    let (partitions, chosen) = *streams.iter().take_while(pays).last()?;
    let why = match (partitions, streams.get(1)) {
        (1, Some((two, slower))) => format!(
            "a durable write takes {}, and {} with {two} streams at once: each would wait for the others",
            time(alone.mean_ns),
            time(slower.mean_ns)
        ),
        (1, None) => "no more than one stream was measured".to_owned(),
        _ => format!(
            "a durable write takes {}, and {} with {partitions} streams at once: {} writes a second instead of {}",
            time(alone.mean_ns),
            time(chosen.mean_ns),
            number(chosen.per_second),
            number(alone.per_second)
        ),
    };
    Some(Recommendation { setting: "log_partitions", value: partitions.to_string(), why })
}

fn log_hiding(found: &Found) -> Option<Recommendation> {
    let small = found.durable.iter().find(|row| row.bytes >= 4096).or(found.durable.last())?;
    let outliers = &small.outliers;
    let slow = outliers.share * outliers.times_normal;
    let their_time = slow / (slow + 1.0 - outliers.share);
    let pays = their_time >= OUTLIERS_TIME && outliers.times_normal >= OUTLIERS_FACTOR;
    let measured = format!(
        "{} of {} durable writes of {} took more than twice the mean, {} times a normal one, {:.0} % of the time",
        outliers.count,
        small.latency.count,
        bytes(small.bytes.into()),
        number(outliers.times_normal),
        100.0 * their_time
    );
    let (value, why) = if pays {
        (
            "on",
            format!(
                "{measured}: a second log device would take over meanwhile (alone, the device has none to hide behind)"
            ),
        )
    } else {
        ("off", format!("{measured}: there is nothing to hide"))
    };
    Some(Recommendation { setting: "log_hiding", value: quoted(value), why })
}

fn quoted(name: &str) -> String {
    format!("{name:?}")
}

fn time(nanoseconds: f64) -> String {
    duration_ns(nanoseconds.round() as u64)
}
