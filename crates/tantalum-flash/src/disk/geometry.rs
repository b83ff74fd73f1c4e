//! Where a sector lies and when it passes under its head.
//!
//! Promises: sectors in the order of their numbers lie along a track, then on the next head's track, then on the next
//! cylinder; tracks are skewed so that reading on across a switch of heads or cylinders loses no more than the switch.

use super::disk_parameters::{DiskParameters, SeekCurve};
use crate::Nanos;
use crate::link::nanos;

/// A track, by cylinder and head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    pub cylinder: u32,
    pub head: u32,
}

/// A sector on its track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub track: Track,
    pub sector: u32,
    pub sectors_per_track: u32,
}

/// Consecutive sectors of one track as they pass: the first at `begin`, the last until `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pass {
    pub track: Track,
    pub sectors: u32,
    pub begin: Nanos,
    pub end: Nanos,
}

#[derive(Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u32,
    sectors_per_track: u32,
}

/// The layout of a disk, its rotation and its arm's speed.
#[derive(Debug)]
pub(super) struct Geometry {
    zones: Vec<Zone>,
    heads: u32,
    sectors: u64,
    /// Nanoseconds of a turn.
    pub turn: Nanos,
    head_switch: Nanos,
    /// How far the next cylinder's first track is turned against the last track of this one, as time.
    cylinder_skew: Nanos,
    cylinders: u32,
    seek_read: SeekCurve,
    seek_write: SeekCurve,
}

impl Geometry {
    pub fn new(parameters: &DiskParameters) -> Self {
        let mut zones = Vec::new();
        let (mut first_sector, mut first_cylinder) = (0, 0);
        for zone in 0..parameters.zones {
            let next_cylinder =
                (u64::from(parameters.cylinders) * u64::from(zone + 1) / u64::from(parameters.zones)) as u32;
            let spread = u64::from(parameters.outer_track_sectors - parameters.inner_track_sectors);
            let narrower = spread * u64::from(zone) / u64::from(parameters.zones.max(2) - 1);
            let sectors_per_track = parameters.outer_track_sectors - narrower as u32;
            zones.push(Zone { first_sector, first_cylinder, sectors_per_track });
            let tracks = u64::from(next_cylinder - first_cylinder) * u64::from(parameters.heads);
            first_sector += tracks * u64::from(sectors_per_track);
            first_cylinder = next_cylinder;
        }
        let &DiskParameters { cylinders, seek_read, seek_write, .. } = parameters;
        let next_track = |curve: SeekCurve| if cylinders > 1 { curve.nanos(1, cylinders) } else { 0 };
        Self {
            cylinder_skew: next_track(seek_read).max(next_track(seek_write)).into(),
            cylinders,
            seek_read,
            seek_write,
            zones,
            heads: parameters.heads,
            sectors: first_sector,
            turn: nanos(parameters.rotation_us()),
            head_switch: nanos(parameters.head_switch_us),
        }
    }

    /// Sectors of the whole disk.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn locate(&self, sector: u64) -> Place {
        let after = self.zones.partition_point(|zone| zone.first_sector <= sector);
        let zone = &self.zones[after - 1];
        let within = sector - zone.first_sector;
        let track = within / u64::from(zone.sectors_per_track);
        Place {
            track: Track {
                cylinder: zone.first_cylinder + (track / u64::from(self.heads)) as u32,
                head: (track % u64::from(self.heads)) as u32,
            },
            sector: (within % u64::from(zone.sectors_per_track)) as u32,
            sectors_per_track: zone.sectors_per_track,
        }
    }

    /// How long the arm takes to be ready over another track.
    pub fn movement(&self, from: Track, to: Track, is_write: bool) -> Nanos {
        if from == to {
            return 0;
        }
        let seek = if is_write { &self.seek_write } else { &self.seek_read };
        let switch = if from.head == to.head { 0 } else { self.head_switch };
        match from.cylinder.abs_diff(to.cylinder) {
            0 => switch,
            distance => Nanos::from(seek.nanos(distance, self.cylinders)).max(switch),
        }
    }

    /// The first time, not before `ready`, at which the place begins to pass under its head.
    pub fn next_pass(&self, ready: Nanos, place: Place) -> Nanos {
        ready + (self.phase(place) + self.turn - ready % self.turn) % self.turn
    }

    /// The tracks over which `count` sectors from `sector` on pass, the first of them at `begin`.
    pub fn passes(&self, begin: Nanos, sector: u64, count: u64, is_write: bool) -> impl Iterator<Item = Pass> {
        let (mut next, end_sector) = (sector, sector + count);
        let mut last: Option<Pass> = None;
        std::iter::from_fn(move || {
            if next == end_sector {
                return None;
            }
            let place = self.locate(next);
            let begin = match last {
                None => begin,
                Some(last) => self.next_pass(last.end + self.movement(last.track, place.track, is_write), place),
            };
            let sectors = u64::from(place.sectors_per_track - place.sector).min(end_sector - next);
            let end = begin + self.sector_time(place, sectors);
            next += sectors;
            last = Some(Pass { track: place.track, sectors: sectors as u32, begin, end });
            last
        })
    }

    /// Time for `sectors` of a place's track; at least the time to the first whole nanosecond after them.
    fn sector_time(&self, place: Place, sectors: u64) -> Nanos {
        (sectors * self.turn).div_ceil(u64::from(place.sectors_per_track))
    }

    /// When within a turn the place passes.
    fn phase(&self, place: Place) -> Nanos {
        let (cylinder, head) = (u64::from(place.track.cylinder), u64::from(place.track.head));
        let per_cylinder = self.head_switch * u64::from(self.heads - 1) + self.cylinder_skew;
        // One sector more for each track, for a fraction of a nanosecond must not cost a turn.
        let margin = self.turn.div_ceil(u64::from(place.sectors_per_track));
        let tracks = cylinder * u64::from(self.heads) + head;
        let skew = cylinder * per_cylinder + head * self.head_switch + tracks * margin;
        (skew + self.sector_time(place, u64::from(place.sector))) % self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(&DiskParameters::example())
    }

    #[test]
    fn seeks_take_what_the_data_sheet_says() {
        let geometry = geometry();
        let millis = |cylinder, is_write| {
            let track = |cylinder| Track { cylinder, head: 0 };
            geometry.movement(track(0), track(cylinder), is_write) as f64 / 1e6
        };
        let cylinders = f64::from(geometry.cylinders);
        let average = |is_write| {
            let weighted = (0..geometry.cylinders).map(|d| millis(d, is_write) * 2.0 * (cylinders - f64::from(d)));
            weighted.sum::<f64>() / (cylinders * cylinders)
        };
        assert!((average(false) - 4.0).abs() < 0.05);
        assert!((average(true) - 4.4).abs() < 0.05);
        assert!((millis(51_051, false) - 8.1).abs() < 0.05);
    }

    #[test]
    fn every_sector_has_one_place_and_the_order_is_by_track() {
        let geometry = geometry();
        assert!((70e9..76e9).contains(&(geometry.sectors() as f64 * 512.0)));
        let mut last = geometry.locate(0);
        for sector in 1..20_000 {
            let place = geometry.locate(sector);
            let follows = match place.sector {
                0 => {
                    last.sector + 1 == last.sectors_per_track
                        && (place.track.head == last.track.head + 1
                            || (place.track.head == 0 && place.track.cylinder == last.track.cylinder + 1))
                }
                s => place.track == last.track && s == last.sector + 1,
            };
            assert!(follows, "{last:?} then {place:?}");
            last = place;
        }
        assert_eq!(geometry.locate(geometry.sectors() - 1).track, Track { cylinder: 51_051, head: 3 });
    }

    #[test]
    fn crossing_tracks_costs_the_switch_and_no_turn() {
        let geometry = geometry();
        let begin = geometry.next_pass(1_000_000, geometry.locate(0));
        let passes: Vec<Pass> = geometry.passes(begin, 0, 840 * 40, true).collect();
        assert_eq!(passes.len(), 40);
        for pair in passes.windows(2) {
            let lost = pair[1].begin - pair[0].end;
            assert!(lost <= 700_000, "{lost} ns between {pair:?}");
        }
    }
}
