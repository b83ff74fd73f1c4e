//! What a device can do, as far as the system tells, and what follows from it.

use std::fmt;

/// What happens to a completed write when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteCache {
    /// Nothing: there is no write cache, or it survives.
    None,
    /// It may be lost, until it is flushed.
    Volatile,
    /// The system does not say; treated as volatile.
    Unknown,
}

impl WriteCache {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Volatile => "volatile",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The zones of a device, each of which is written in order, from its beginning to its end, and then only after it was reset: NVMe's
/// Zoned Namespaces, or a host-managed zoned block device.
///
/// Every zone can be written up to its size; the specification also has zones whose capacity is smaller.
///
/// ```
/// use tantalum_device::Zones;
/// let zones = Zones { start: 16 << 20, bytes: 64 << 20, max_active: 14 };
/// assert_eq!(zones.beginning_of((80 << 20) + 4096), Some(80 << 20));
/// assert_eq!(zones.beginning_of(4096), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zones {
    /// Where the first one begins. What lies before it can be written in any order: conventional zones, or a namespace beside.
    pub start: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// How many may be partly written at a time.
    pub max_active: u32,
}

impl Zones {
    /// Where the zone of a byte begins; `None` before the first.
    pub const fn beginning_of(&self, offset: u64) -> Option<u64> {
        match offset.checked_sub(self.start) {
            Some(within) => Some(offset - within % self.bytes),
            None => None,
        }
    }
}

/// What a device can do. Sizes are in bytes.
///
/// ```
/// use tantalum_device::{Capabilities, WriteCache};
/// let found = Capabilities { write_cache: WriteCache::Volatile, fua: Some(true), ..Capabilities::unknown(512) };
/// println!("{found}");
/// assert!(found.advice().iter().any(|line| line.contains("FUA")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Offsets and lengths must be multiples of this.
    pub logical_block: u32,
    /// What the medium reads and writes at once; a smaller write costs a read first.
    pub physical_block: u32,
    /// Largest aligned write that a power cut leaves whole or absent; 0 if there is none or it is unknown.
    pub atomic_write_bytes: u32,
    /// Bytes that are erased at once, by a discard, before any of them is written again: raw flash. 0 where bytes can be
    /// written over.
    pub erase_block_bytes: u32,
    /// Whether completed writes need a flush.
    pub write_cache: WriteCache,
    /// Whether one write can pass the cache by itself (forced unit access); `None` if unknown.
    pub fua: Option<bool>,
    /// Whether the medium is a spinning disk; `None` if unknown.
    pub rotational: Option<bool>,
    /// Handles by which the host tells the device what data belongs together ([`Device::write_placed`](crate::Device::write_placed));
    /// 1 where it has no say.
    pub placement_handles: u32,
    /// The zones, if what the device holds must be written in order.
    pub zones: Option<Zones>,
    /// Whether reads and writes pass by the page cache (`O_DIRECT`).
    pub direct: bool,
}

impl Capabilities {
    /// A device of which only the logical block is known.
    pub const fn unknown(logical_block: u32) -> Self {
        Self {
            logical_block,
            physical_block: logical_block,
            atomic_write_bytes: 0,
            erase_block_bytes: 0,
            write_cache: WriteCache::Unknown,
            fua: None,
            rotational: None,
            placement_handles: 1,
            zones: None,
            direct: true,
        }
    }

    /// Whether an aligned write of `bytes` is never torn by a power cut.
    pub const fn writes_atomically(&self, bytes: u32) -> bool {
        bytes <= self.atomic_write_bytes
    }

    /// What follows for an engine, a sentence each.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        advice.push(match (self.write_cache, self.fua) {
            (WriteCache::None, _) => {
                "no volatile write cache: a completed write is durable, flushes cost little".into()
            }
            (WriteCache::Volatile, Some(true)) => "durable writes use RWF_DSYNC, which the device serves by FUA".into(),
            (WriteCache::Volatile, Some(false)) => {
                "durable writes use RWF_DSYNC; the device has no FUA, so each one costs a write and a cache flush"
                    .into()
            }
            _ => "durable writes use RWF_DSYNC; what it costs here is unknown, measure it".into(),
        });
        advice.push(match self.atomic_write_bytes {
            0 => "torn-page protection needed: no atomic writes are known".into(),
            bytes => format!("pages of up to {bytes} bytes need no torn-page protection"),
        });
        if self.physical_block > self.logical_block {
            advice
                .push(format!("write in multiples of {} bytes: smaller writes cost a read first", self.physical_block));
        }
        if self.rotational == Some(true) {
            advice.push("the system calls it a spinning disk (of virtual disks often wrongly): keep the log on a device of its own".into());
        }
        if let Some(zones) = self.zones {
            advice.push(format!(
                "it has zones of {} bytes, which are written in order: only page_store = \"log-structured\" with segment_bytes = {0} \
                 works on it, and the log goes elsewhere",
                zones.bytes
            ));
        }
        if !self.direct {
            advice.push("the file system refuses direct I/O: every access passes through the page cache".into());
        }
        advice
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |answer: Option<bool>| match answer {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        write!(f, "logical block {} B, physical block {} B, ", self.logical_block, self.physical_block)?;
        match self.atomic_write_bytes {
            0 => write!(f, "atomic writes unknown, ")?,
            bytes => write!(f, "atomic writes up to {bytes} B, ")?,
        }
        let cache = self.write_cache;
        write!(f, "write cache {cache}, FUA {}, rotational {}, ", known(self.fua), known(self.rotational))?;
        write!(f, "direct I/O {}", known(Some(self.direct)))?;
        if self.placement_handles > 1 {
            write!(f, ", {} placement handles", self.placement_handles)?;
        }
        match self.zones {
            None => Ok(()),
            Some(Zones { start, bytes, max_active }) => {
                write!(f, ", zones of {bytes} B from byte {start} on, {max_active} of them active")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_and_advice_say_what_was_found() {
        let found = Capabilities {
            physical_block: 4096,
            write_cache: WriteCache::Volatile,
            fua: Some(false),
            rotational: Some(true),
            direct: false,
            ..Capabilities::unknown(512)
        };
        assert_eq!(
            found.to_string(),
            "logical block 512 B, physical block 4096 B, atomic writes unknown, write cache volatile, FUA no, \
             rotational yes, direct I/O no"
        );
        let advice = found.advice().join("\n");
        for word in ["cache flush", "torn-page", "4096", "spinning", "page cache"] {
            assert!(advice.contains(word), "{word} in {advice}");
        }
    }

    #[test]
    fn atomic_writes_end_the_need_for_protection() {
        let found = Capabilities { atomic_write_bytes: 16384, ..Capabilities::unknown(512) };
        assert!(found.writes_atomically(16384) && !found.writes_atomically(32768));
        assert!(!found.advice().join("\n").contains("torn-page protection needed"));
    }

    #[test]
    fn zones_are_named_with_what_works_on_them() {
        let zones = Zones { start: 1 << 20, bytes: 4 << 20, max_active: 8 };
        let found = Capabilities { zones: Some(zones), ..Capabilities::unknown(4096) };
        assert!(found.to_string().ends_with("zones of 4194304 B from byte 1048576 on, 8 of them active"), "{found}");
        assert!(found.advice().join("\n").contains("segment_bytes = 4194304"));
        assert_eq!([0, 1 << 20, (9 << 20) - 1].map(|at| zones.beginning_of(at)), [None, Some(1 << 20), Some(5 << 20)]);
    }
}
