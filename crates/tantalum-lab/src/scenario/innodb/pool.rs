//! InnoDB's buffer pool: frames without contents, in lists by their last use.
//!
//! In `instances` that share nothing but the server. Each has a list of frames by their last use, the last three eighths of which
//! are *old*: a page that is read goes to the begin of the old ones, and to the begin of all when it is used a second later or more.

use tantalum_rt::collections::HashSet;

use super::pages::Use;

/// Instances of a pool of a GB or more (`innodb_buffer_pool_instances`).
pub const INSTANCES: usize = 8;
/// Old frames in eighths (`innodb_old_blocks_pct`, 37).
const OLD_EIGHTHS: usize = 3;
/// By how much their number may be off.
const OLD_TOLERANCE: usize = 20;
/// A page is not moved to the begin for uses this soon after its first (`innodb_old_blocks_time`).
const OLD_NS: u64 = 1_000_000_000;

const NONE: u32 = u32::MAX;

/// A frame, by its number.
pub type FrameId = u32;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u32,
    /// Towards the begin of its list, and towards its end.
    newer: u32,
    older: u32,
    /// Evictions of its instance when it came to the begin.
    evictions: u32,
    /// When it was first used, in nanoseconds; 0 for not yet.
    used_ns: u64,
    is_old: bool,
    is_dirty: bool,
    io: Io,
}

/// What is under way with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Io {
    None,
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    len: usize,
}

#[derive(Clone, Debug)]
struct Instance {
    young: List,
    old: List,
    free: Vec<FrameId>,
    evictions: u32,
    /// Whether it pays to look for a clean frame at the end of the list.
    try_scan: bool,
    /// The frame at which the page cleaner goes on (`lru_hp`).
    batch_at: u32,
}

/// What became of the oldest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Evicted,
    /// It is being written from now on.
    ToWrite(u32),
    None,
}

/// What a task that wants a page finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Here,
    /// It is being read, or, for a change, written.
    Busy,
    Missing,
}

/// The pool. Cheap to look at; to copy it takes its size in memory.
#[derive(Clone, Debug)]
pub struct Pool {
    frames: Vec<Frame>,
    frame_of: Vec<u32>,
    instances: Vec<Instance>,
    /// Pages with changes in the change buffer.
    changed: HashSet<u32>,
    dirty: usize,
}

impl Pool {
    /// An empty one, for a database of so many pages.
    pub fn new(frames: usize, pages: u64) -> Self {
        let list = List { newest: NONE, oldest: NONE, len: 0 };
        let instance =
            Instance { young: list, old: list, free: Vec::new(), evictions: 0, try_scan: true, batch_at: NONE };
        let mut instances = vec![instance; INSTANCES];
        for frame in (0..frames).rev() {
            instances[frame % INSTANCES].free.push(frame as u32);
        }
        let frame = Frame {
            page: NONE,
            newer: NONE,
            older: NONE,
            evictions: 0,
            used_ns: 0,
            is_old: false,
            is_dirty: false,
            io: Io::None,
        };
        Self {
            frames: vec![frame; frames],
            frame_of: vec![NONE; pages as usize],
            instances,
            changed: HashSet::default(),
            dirty: 0,
        }
    }

    /// The instance of a page: 64 that follow each other have the same.
    pub fn instance_of(page: u32) -> usize {
        (page / 64) as usize % INSTANCES
    }

    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Dirty frames.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Free frames of an instance.
    pub fn free(&self, instance: usize) -> usize {
        self.instances[instance].free.len()
    }

    /// Uses a page, if it is there; a change makes it dirty.
    pub fn touch(&mut self, page: u32, how: Use, now_ns: u64) -> Found {
        let id = self.frame_of[page as usize];
        if id == NONE {
            return Found::Missing;
        }
        let frame = &mut self.frames[id as usize];
        if frame.io == Io::Read || (how != Use::Read && frame.io == Io::Write) {
            return Found::Busy;
        }
        if how != Use::Read && !frame.is_dirty {
            frame.is_dirty = true;
            self.dirty += 1;
        }
        let frame = &mut self.frames[id as usize];
        let first_use_ns = frame.used_ns;
        if first_use_ns == 0 {
            frame.used_ns = now_ns.max(1);
        }
        let instance = &self.instances[Self::instance_of(page)];
        let comes_first = if frame.is_old {
            first_use_ns > 0 && now_ns >= first_use_ns + OLD_NS
        } else {
            // Not while it is in the first quarter of the young ones.
            let since = instance.evictions.wrapping_sub(frame.evictions) as usize;
            since > (instance.young.len + instance.old.len) * (8 - OLD_EIGHTHS) / (4 * 8)
        };
        if comes_first {
            self.unlink(id);
            self.link_newest(id, false);
            self.balance(Self::instance_of(page));
        }
        Found::Here
    }

    /// Notes a change of a page that is not there in the change buffer. Whether it was noted: not if it is there meanwhile.
    pub fn change_later(&mut self, page: u32) -> bool {
        let is_missing = self.frame_of[page as usize] == NONE;
        if is_missing {
            self.changed.insert(page);
        }
        is_missing
    }

    /// A free frame, if there is one.
    pub fn take_free(&mut self, instance: usize) -> Option<FrameId> {
        self.instances[instance].free.pop()
    }

    /// Gives a frame back that was not needed.
    pub fn give_back(&mut self, instance: usize, frame: FrameId) {
        self.instances[instance].free.push(frame);
    }

    /// Has a page read into a frame, unless it is there already: then the frame is free again.
    pub fn begin_read(&mut self, page: u32, frame: FrameId) -> bool {
        let instance = Self::instance_of(page);
        if self.frame_of[page as usize] != NONE {
            self.give_back(instance, frame);
            return false;
        }
        let evictions = self.instances[instance].evictions;
        self.frame_of[page as usize] = frame;
        let of = &mut self.frames[frame as usize];
        (of.page, of.used_ns, of.io, of.is_dirty, of.evictions) = (page, 0, Io::Read, false, evictions);
        self.link_newest(frame, true);
        self.balance(instance);
        true
    }

    /// The page is read, and what was buffered of it is merged.
    pub fn end_read(&mut self, page: u32) {
        let id = self.frame_of[page as usize];
        let frame = &mut self.frames[id as usize];
        debug_assert_eq!(frame.io, Io::Read);
        frame.io = Io::None;
        if self.changed.remove(&page) {
            frame.is_dirty = true;
            self.dirty += 1;
        }
    }

    /// Whether there may be a clean page near the end of the list: not if there was none when a task looked last, until the page cleaner
    /// has been there.
    pub fn is_worth_a_look(&self, instance: usize) -> bool {
        self.instances[instance].try_scan
    }

    /// Evicts a clean page of the last `depth` of the list, or of all with `all`. Whether there was one.
    pub fn evict(&mut self, instance: usize, depth: usize, all: bool) -> bool {
        let found =
            self.oldest_first(instance).take(if all { usize::MAX } else { depth }).find(|&id| self.is_clean(id));
        match found {
            Some(id) => self.free_frame(instance, id),
            None if !all => self.instances[instance].try_scan = false,
            None => {}
        }
        found.is_some()
    }

    /// Evicts the oldest page, if it is clean, or begins to write it; not those that are being read or written.
    pub fn take_oldest(&mut self, instance: usize) -> Taken {
        let oldest = self.oldest_first(instance).find(|&id| self.frames[id as usize].io == Io::None);
        match oldest {
            Some(id) if self.is_clean(id) => {
                self.free_frame(instance, id);
                Taken::Evicted
            }
            Some(id) => {
                self.frames[id as usize].io = Io::Write;
                Taken::ToWrite(self.frames[id as usize].page)
            }
            None => Taken::None,
        }
    }

    /// The page cleaner goes to the end of an instance's list.
    pub fn begin_batches(&mut self, instance: usize) {
        self.instances[instance].batch_at = self.oldest(instance);
    }

    /// Goes on from there: evicts clean pages until `depth` frames are free, and begins to write the dirty ones on the way, `most` of
    /// them. `left` counts down the pages that it may do either to.
    pub fn next_batch(&mut self, instance: usize, depth: usize, most: usize, left: &mut usize) -> Vec<u32> {
        let mut batch = Vec::new();
        while *left > 0 && batch.len() < most && self.free(instance) < depth {
            let at = self.instances[instance].batch_at;
            if at == NONE {
                break;
            }
            self.instances[instance].batch_at = self.newer_of(instance, at);
            if self.is_clean(at) {
                self.free_frame(instance, at);
            } else if self.can_write(at) {
                self.frames[at as usize].io = Io::Write;
                batch.push(self.frames[at as usize].page);
            } else {
                continue;
            }
            *left -= 1;
        }
        batch
    }

    /// The page cleaner leaves an instance.
    pub fn end_batches(&mut self, instance: usize) {
        let instance = &mut self.instances[instance];
        (instance.try_scan, instance.batch_at) = (true, NONE);
    }

    /// A page is written, and evicted.
    pub fn end_write(&mut self, page: u32) {
        let id = self.frame_of[page as usize];
        let frame = &mut self.frames[id as usize];
        debug_assert!(frame.io == Io::Write && frame.is_dirty);
        (frame.io, frame.is_dirty) = (Io::None, false);
        self.dirty -= 1;
        self.free_frame(Self::instance_of(page), id);
    }

    fn is_clean(&self, id: FrameId) -> bool {
        let frame = &self.frames[id as usize];
        frame.io == Io::None && !frame.is_dirty
    }

    fn can_write(&self, id: FrameId) -> bool {
        let frame = &self.frames[id as usize];
        frame.io == Io::None && frame.is_dirty
    }

    fn oldest(&self, instance: usize) -> u32 {
        let Instance { young, old, .. } = &self.instances[instance];
        if old.len > 0 { old.oldest } else { young.oldest }
    }

    /// Young ones follow old ones.
    fn newer_of(&self, instance: usize, id: FrameId) -> u32 {
        let frame = &self.frames[id as usize];
        if frame.newer == NONE && frame.is_old { self.instances[instance].young.oldest } else { frame.newer }
    }

    fn oldest_first(&self, instance: usize) -> impl Iterator<Item = FrameId> + '_ {
        let some = |id| (id != NONE).then_some(id);
        std::iter::successors(some(self.oldest(instance)), move |&id| some(self.newer_of(instance, id)))
    }

    fn free_frame(&mut self, instance: usize, id: FrameId) {
        self.unlink(id);
        self.frame_of[self.frames[id as usize].page as usize] = NONE;
        self.frames[id as usize].page = NONE;
        self.instances[instance].free.push(id);
        self.instances[instance].evictions = self.instances[instance].evictions.wrapping_add(1);
        self.balance(instance);
    }

    fn list_of(&mut self, page: u32, is_old: bool) -> &mut List {
        let instance = &mut self.instances[Self::instance_of(page)];
        if is_old { &mut instance.old } else { &mut instance.young }
    }

    fn link_newest(&mut self, id: FrameId, is_old: bool) {
        let evictions = self.instances[Self::instance_of(self.frames[id as usize].page)].evictions;
        let page = self.frames[id as usize].page;
        let list = self.list_of(page, is_old);
        let before = std::mem::replace(&mut list.newest, id);
        list.len += 1;
        if before == NONE {
            list.oldest = id;
        } else {
            self.frames[before as usize].newer = id;
        }
        let frame = &mut self.frames[id as usize];
        (frame.newer, frame.older, frame.is_old, frame.evictions) = (NONE, before, is_old, evictions);
    }

    fn link_oldest(&mut self, id: FrameId, is_old: bool) {
        let page = self.frames[id as usize].page;
        let list = self.list_of(page, is_old);
        let behind = std::mem::replace(&mut list.oldest, id);
        list.len += 1;
        if behind == NONE {
            list.newest = id;
        } else {
            self.frames[behind as usize].older = id;
        }
        let frame = &mut self.frames[id as usize];
        (frame.newer, frame.older, frame.is_old) = (behind, NONE, is_old);
    }

    fn unlink(&mut self, id: FrameId) {
        let Frame { page, newer, older, is_old, .. } = self.frames[id as usize];
        let instance = Self::instance_of(page);
        if self.instances[instance].batch_at == id {
            self.instances[instance].batch_at = self.newer_of(instance, id);
        }
        let list = self.list_of(page, is_old);
        list.len -= 1;
        if newer == NONE {
            list.newest = older;
        }
        if older == NONE {
            list.oldest = newer;
        }
        if newer != NONE {
            self.frames[newer as usize].older = older;
        }
        if older != NONE {
            self.frames[older as usize].newer = newer;
        }
    }

    /// Keeps the share of old frames.
    fn balance(&mut self, instance: usize) {
        loop {
            let Instance { young, old, .. } = self.instances[instance];
            let wanted = (young.len + old.len) * OLD_EIGHTHS / 8;
            if old.len + OLD_TOLERANCE < wanted {
                self.unlink(young.oldest);
                self.link_newest_old(young.oldest);
            } else if old.len > wanted + OLD_TOLERANCE {
                self.unlink(old.newest);
                self.link_oldest(old.newest, false);
            } else {
                return;
            }
        }
    }

    fn link_newest_old(&mut self, id: FrameId) {
        let evictions = self.frames[id as usize].evictions;
        self.link_newest(id, true);
        self.frames[id as usize].evictions = evictions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Pages of the first instance.
    fn page(number: u32) -> u32 {
        number / 64 * 64 * INSTANCES as u32 + number % 64
    }

    fn read(pool: &mut Pool, page: u32, now_ns: u64) {
        while pool.free(0) == 0 {
            assert!(pool.evict(0, usize::MAX, true), "a clean frame");
        }
        let frame = pool.take_free(0).unwrap();
        assert!(pool.begin_read(page, frame));
        assert_eq!(pool.touch(page, Use::Read, now_ns), Found::Busy, "until it is read");
        pool.end_read(page);
        assert_eq!(pool.touch(page, Use::Read, now_ns), Found::Here);
    }

    #[test]
    fn pages_that_are_used_again_later_stay() {
        let mut pool = Pool::new(400 * INSTANCES, 100_000);
        for number in 0..400 {
            read(&mut pool, page(number), 1);
        }
        // Again after more than a second: young ones. The others are evicted, oldest first.
        let used: Vec<u32> = (200..250).map(page).collect();
        for &page in &used {
            assert_eq!(pool.touch(page, Use::Read, 2 * SECOND), Found::Here);
        }
        for number in 400..650 {
            read(&mut pool, page(number), 3 * SECOND);
        }
        assert!(used.iter().all(|&page| pool.touch(page, Use::Read, 3 * SECOND) == Found::Here));
        assert_eq!(pool.touch(page(0), Use::Read, 3 * SECOND), Found::Missing);
    }

    #[test]
    fn dirty_pages_are_written_before_they_go() {
        let mut pool = Pool::new(100 * INSTANCES, 100_000);
        for number in 0..100 {
            read(&mut pool, page(number), 1);
            assert_eq!(pool.touch(page(number), Use::Change, 1), Found::Here);
        }
        assert_eq!(pool.dirty(), 100);
        assert!(!pool.evict(0, 100, false) && !pool.evict(0, 100, true), "none is clean");
        let Taken::ToWrite(written) = pool.take_oldest(0) else { panic!("the oldest is dirty") };
        assert_eq!(written, page(0));
        assert_eq!(pool.touch(written, Use::Read, 2), Found::Here);
        assert_eq!(pool.touch(written, Use::Change, 2), Found::Busy, "it is being written");
        pool.end_write(written);
        assert_eq!((pool.free(0), pool.touch(written, Use::Read, 2)), (1, Found::Missing));
        read(&mut pool, written, 3);
        assert!(!pool.is_worth_a_look(0), "before the page cleaner has been there");
        let mut left = 15;
        pool.begin_batches(0);
        let batch = pool.next_batch(0, 1024, 10, &mut left);
        assert_eq!((batch.len(), left), (10, 5));
        // One goes meanwhile, at which the page cleaner would have gone on.
        assert_eq!(pool.take_oldest(0), Taken::ToWrite(page(11)));
        pool.end_write(page(11));
        batch.iter().for_each(|&page| pool.end_write(page));
        assert_eq!(pool.next_batch(0, 1024, 10, &mut left), (12..17).map(page).collect::<Vec<_>>());
        assert!(pool.next_batch(0, 1024, 10, &mut left).is_empty());
        pool.end_batches(0);
        assert!(pool.is_worth_a_look(0) && pool.evict(0, 100, false), "the one that was read");
        assert_eq!((pool.free(0), pool.dirty()), (12, 88));
    }

    #[test]
    fn changes_of_pages_that_are_not_there_are_merged_when_they_are_read() {
        let mut pool = Pool::new(10 * INSTANCES, 1000);
        assert!(pool.change_later(page(1)));
        read(&mut pool, page(1), 1);
        read(&mut pool, page(2), 1);
        assert_eq!(pool.dirty(), 1);
        assert!(!pool.change_later(page(1)), "it is there");
    }
}
