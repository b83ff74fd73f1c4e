//! Reading a page: what was last merged, and the changes since ("In-Page Logging", section 3.2).

use tantalum_device::AlignedBuffer;
use tantalum_rt::ArcRwLockReadGuard;

use super::{
    InPageStore,
    collect::{Collected, apply},
    counters::Counters,
    sector::Sector,
    unit::{Home, SectorInfo, Unit},
};
use crate::{Load, PageId, Result, Status, page::header};

impl InPageStore {
    /// Reads a page as the present session sees it: with the changes of committed groups and of active ones, without those of
    /// groups that a crash aborted.
    ///
    /// # Errors
    /// When the device cannot read. Damage is no error here.
    pub(super) fn load_page(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        let Some((logical, index)) = self.place_of(id) else {
            return Ok(Load::Damaged(format!(
                "it lies beyond the end of the store, which has room for {} pages; perhaps the file was truncated",
                self.pages()
            )));
        };
        let unit: ArcRwLockReadGuard<Unit> = self.ready_unit(logical)?;
        if let Some(scratch) = &unit.scratch {
            return self.load_scratch(scratch, id, index, page);
        }
        let Some(home) = &unit.home else { return Ok(Load::NeverWritten) };
        Counters::add(&self.counters.pages_loaded, 1);
        let is_present = home.pages >> index & 1 == 1;
        if is_present {
            Counters::add(&self.counters.bytes_loaded, page.len());
            self.medium.read(self.medium.geometry.page_at(home.physical, index), page)?;
            if let Err(what) = header::verify(page, id) {
                return Ok(Load::Damaged(what));
            }
        } else {
            header::clear(page, id);
        }
        match self.apply_changes(home, index, page)? {
            Err(what) => Ok(Load::Damaged(what)),
            Ok(0) if !is_present => Ok(Load::NeverWritten),
            Ok(_) => Ok(Load::Page),
        }
    }

    /// Applies what the sectors of a version hold for a page. Returns how many groups changed it, or what is wrong.
    fn apply_changes(&self, home: &Home, index: usize, page: &mut [u8]) -> Result<Result<usize, String>> {
        let mut sectors: Vec<SectorInfo> =
            home.index().sectors.iter().filter(|sector| sector.summary.pages >> index & 1 == 1).copied().collect();
        if sectors.is_empty() {
            return Ok(Ok(0));
        }
        let (session, mut collected) = (self.session(), Collected::default());
        let horizon = session.horizon.committed_through();
        let read = self.read_sectors(&mut sectors, home.sequence, &mut |sector| {
            for piece in sector.pieces().filter(|piece| usize::from(piece.page) == index) {
                if session.status(piece.position, horizon)? != Status::Aborted {
                    collected.add(&piece);
                }
            }
            Ok(())
        })?;
        Counters::add(&self.counters.pages_with_changes, 1);
        Counters::add(&self.counters.sectors_loaded, sectors.len());
        Counters::add(&self.counters.bytes_loaded, sectors.len() * self.medium.geometry.sector_bytes);
        let apply_all = || {
            let changes = read.and_then(|()| collected.finish())?;
            changes.iter().try_for_each(|change| apply(page, change.position, &change.bytes))?;
            Ok(changes.len())
        };
        Ok(apply_all())
    }

    /// Reads sectors of a version, neighbours at once, and shows each. Returns what is wrong, if it is.
    pub(super) fn read_sectors(
        &self,
        sectors: &mut [SectorInfo],
        sequence: u64,
        visit: &mut dyn FnMut(&Sector<'_>) -> Result<(), String>,
    ) -> Result<Result<(), String>> {
        let sector_bytes = self.medium.geometry.sector_bytes;
        sectors.sort_unstable_by_key(|sector| sector.at);
        for run in sectors.chunk_by(|a, b| a.at + sector_bytes as u64 == b.at) {
            let mut buffer = AlignedBuffer::zeroed(run.len() * sector_bytes);
            self.medium.read(run[0].at, &mut buffer)?;
            for (sector, info) in buffer.chunks_exact(sector_bytes).zip(run) {
                let found = Sector::decode(sector, self.medium.store).filter(|found| found.head.sequence == sequence);
                let shown = match found {
                    Some(found) => visit(&found),
                    None => Err("it is not the one that was written there".to_owned()),
                };
                if let Err(what) = shown {
                    return Ok(Err(format!("its log sector at byte {}: {what}", info.at)));
                }
            }
        }
        Ok(Ok(()))
    }
}
