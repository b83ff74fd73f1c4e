//! Pages against a model, and against bytes that were not written as a page.

use proptest::{collection::vec, prelude::*};
use tantalum_log::Lsn;

use super::{
    Change, ChangeError, PAGE_SIZES, PageId, PageKind, TableId,
    change::{self, apply},
    header::{self, HEADER_BYTES},
    record::{self, GroupRecord},
    slots,
};

const OWNER: TableId = TableId(7);

fn page_of(kind: PageKind, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    header::clear(&mut page, PageId(9));
    apply(&mut page, &Change::Format { kind, level: 0, owner: OWNER }).unwrap();
    page
}

fn cells(page: &[u8]) -> Vec<Vec<u8>> {
    (0..slots::count(page)).map(|slot| slots::cell(page, slot).unwrap().to_vec()).collect()
}

/// What is done to a slotted page; positions are taken modulo the slots that there are.
#[derive(Clone, Debug)]
enum Step {
    Insert(u16, Vec<u8>),
    Replace(u16, Vec<u8>),
    Delete(u16, u16),
}

/// A cell of any bytes, or one that differs in a few places from others of its kind.
fn cell() -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 1..5);
    let similar = (1..600usize, edits).prop_map(|(len, edits)| {
        let mut cell: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
        edits.into_iter().for_each(|(at, byte)| cell[at.index(len)] = byte);
        cell
    });
    prop_oneof![vec(any::<u8>(), 0..600), similar]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u16>(), cell()).prop_map(|(slot, cell)| Step::Insert(slot, cell)),
        3 => (any::<u16>(), cell()).prop_map(|(slot, cell)| Step::Replace(slot, cell)),
        2 => (any::<u16>(), 0..4u16).prop_map(|(from, len)| Step::Delete(from, len)),
    ]
}

impl Step {
    /// The change for a page with `count` slots, and what becomes of the model.
    fn on<'a>(&'a self, model: &mut Vec<Vec<u8>>) -> Option<Change<'a>> {
        let count = model.len() as u16;
        match self {
            Step::Insert(slot, cell) => {
                let slot = slot % (count + 1);
                model.insert(slot.into(), cell.clone());
                Some(Change::InsertSlot { slot, cell })
            }
            Step::Replace(slot, cell) if count > 0 => {
                let slot = slot % count;
                model[usize::from(slot)] = cell.clone();
                Some(Change::ReplaceSlot { slot, cell })
            }
            Step::Delete(from, len) if count > 0 => {
                let from = from % count;
                let to = (from + len).min(count);
                model.drain(usize::from(from)..usize::from(to));
                Some(Change::DeleteSlots { from, to })
            }
            _ => None,
        }
    }
}

/// Applies a change if it can be, and tells whether it was if it seemed certain.
fn takes_what_suits(page: &mut [u8], change: &Change<'_>) -> bool {
    let suits = change::suits_as_it_is(page, change);
    apply(page, change).is_ok() || !suits
}

fn used(model: &[Vec<u8>]) -> usize {
    model.iter().map(|cell| cell.len() + slots::SLOT_BYTES).sum()
}

proptest! {
    #[test]
    fn slots_behave_like_a_vector(size in prop::sample::select(PAGE_SIZES.to_vec()).prop_map(|size| size as usize), steps in vec(step(), 0..120)) {
        let mut page = page_of(PageKind::Leaf, size);
        let mut model = Vec::new();
        for step in &steps {
            let before = (page.clone(), model.clone());
            let Some(change) = step.on(&mut model) else { continue };
            let suits = change::suits_as_it_is(&page, &change);
            let is_fresh = page == page_of(PageKind::Leaf, size);
            prop_assert!(suits || !is_fresh, "a fresh page has room for any cell");
            if used(&model) <= slots::capacity(size) {
                apply(&mut page, &change).unwrap();
            } else {
                prop_assert!(!suits, "a change that suits is certain to be taken");
                let refused = matches!(apply(&mut page, &change), Err(ChangeError::NoRoom { .. }));
                prop_assert!(refused);
                prop_assert_eq!(&page, &before.0, "a refused change leaves no trace");
                model = before.1;
            }
            slots::check(&page).unwrap();
            prop_assert_eq!(cells(&page), model.clone());
            prop_assert_eq!(slots::free_bytes(&page), slots::capacity(size) - used(&model));
        }
        header::seal(&mut page);
        header::verify(&page, PageId(9)).unwrap();
    }

    #[test]
    fn the_same_changes_from_the_log_give_the_same_page(steps in vec(step(), 1..60)) {
        let mut page = page_of(PageKind::Leaf, 4096);
        let (mut model, mut changes, mut count) = (Vec::new(), Vec::new(), 1);
        Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER }.encode_into(&mut changes);
        for step in &steps {
            let before = model.clone();
            let Some(change) = step.on(&mut model) else { continue };
            let (known, start) = (changes.len(), page.clone());
            if apply(&mut page, &change).is_err() {
                model = before;
                continue;
            }
            // Whole or as a patch, the page becomes the same, byte for byte.
            let is_patch = change.encode_for(&start, &mut changes);
            let mut whole = Vec::new();
            change.encode_into(&mut whole);
            let is_right = if is_patch { changes.len() - known < whole.len() } else { changes[known..] == whole };
            prop_assert!(is_right);
            count += 1;
        }
        let mut bytes = Vec::new();
        record::encode_start(&mut bytes, record::COMMIT, 42, 0);
        record::encode_page(&mut bytes, PageId(9), count);
        bytes.extend_from_slice(&changes);
        let group = GroupRecord::decode(&bytes).unwrap();
        prop_assert!(group.is_commit());
        prop_assert_eq!(group.sequence(), 42);
        let mut copy = vec![0xaa; 4096];
        header::clear(&mut copy, PageId(9));
        for (id, changes) in group.pages() {
            prop_assert_eq!(id, PageId(9));
            for change in changes {
                apply(&mut copy, &change).unwrap();
            }
        }
        prop_assert_eq!(copy, page);
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic(mut page in vec(any::<u8>(), 4096), kind in 0..5u8, steps in vec(step(), 1..8)) {
        page[4] = kind;
        for slot in 0..slots::count(&page) + 2 {
            let _ = slots::cell(&page, slot);
        }
        let _ = header::verify(&page, PageId(0));
        for step in &steps {
            let change = match step {
                Step::Insert(slot, cell) => Change::InsertSlot { slot: slot % 900, cell },
                Step::Replace(slot, cell) => Change::ReplaceSlot { slot: slot % 900, cell },
                Step::Delete(from, len) => Change::DeleteSlots { from: *from, to: from.wrapping_add(*len) },
            };
            prop_assert!(takes_what_suits(&mut page, &change));
        }
        let image = page.clone();
        let _ = apply(&mut page, &Change::Image(&image));
    }

    #[test]
    fn slots_that_nearly_make_sense_are_no_reason_to_panic(
        steps in vec(step(), 1..20),
        damage in vec((4..600usize, any::<u8>()), 1..6),
        more in vec(step(), 1..20),
    ) {
        let mut page = page_of(PageKind::Leaf, 4096);
        let mut model = Vec::new();
        for step in &steps {
            if let Some(change) = step.on(&mut model) {
                let _ = apply(&mut page, &change);
            }
        }
        for (at, byte) in damage {
            page[at] = byte;
        }
        for step in &more {
            if let Some(change) = step.on(&mut model) {
                prop_assert!(takes_what_suits(&mut page, &change));
            }
        }
    }

    #[test]
    fn arbitrary_records_are_refused_or_well_formed(mut bytes in vec(any::<u8>(), 0..200)) {
        if let [tag, flags, ..] = bytes.as_mut_slice() {
            (*tag, *flags) = (1, *flags & 1);
        }
        if let Ok(group) = GroupRecord::decode(&bytes) {
            prop_assert!(group.pages().map(|(_, changes)| changes.count()).all(|count| count > 0));
        }
    }

    #[test]
    fn a_record_cut_short_is_refused(cut in 1..40usize) {
        let mut bytes = Vec::new();
        record::encode_start(&mut bytes, 0, 0, 0);
        record::encode_page(&mut bytes, PageId(3), 1);
        Change::InsertSlot { slot: 0, cell: &[1; 40] }.encode_into(&mut bytes);
        bytes.truncate(bytes.len() - cut);
        prop_assert!(GroupRecord::decode(&bytes).is_err());
    }
}

#[test]
fn a_page_is_whole_only_with_its_own_number_and_checksum() {
    let mut page = page_of(PageKind::Leaf, 4096);
    apply(&mut page, &Change::InsertSlot { slot: 0, cell: b"cell" }).unwrap();
    header::set_lsn(&mut page, Lsn::new(77));
    header::seal(&mut page);
    assert_eq!(header::verify(&page, PageId(9)), Ok(()));
    assert_eq!((header::lsn(&page), header::owner(&page)), (Lsn::new(77), OWNER));
    assert!(header::verify(&page, PageId(8)).unwrap_err().contains("page 9"));
    for at in 0..page.len() {
        page[at] ^= 0x10;
        assert!(header::verify(&page, PageId(9)).is_err(), "byte {at} is covered");
        page[at] ^= 0x10;
    }
}

#[test]
fn a_whole_page_with_impossible_slots_is_not_accepted() {
    let mut page = page_of(PageKind::Leaf, 4096);
    apply(&mut page, &Change::InsertSlot { slot: 0, cell: b"cell" }).unwrap();
    page[HEADER_BYTES] = 0; // the cell now begins elsewhere
    page[HEADER_BYTES + 1] = 0;
    header::seal(&mut page);
    assert!(header::verify(&page, PageId(9)).is_err());
    assert!(
        matches!(slots::cell(&page, 1), Err(error) if error.to_string().contains("page 9 (at byte 36864) is damaged"))
    );
}

#[test]
fn a_patch_is_applied_only_to_the_cell_that_it_was_computed_from() {
    let mut page = page_of(PageKind::Leaf, 4096);
    apply(&mut page, &Change::InsertSlot { slot: 0, cell: &[1; 50] }).unwrap();
    for new in [[&[1; 20], &[2; 10][..], &[1; 20]].concat(), vec![1; 45], [&[2; 5][..], &[1; 50]].concat()] {
        let mut encoded = Vec::new();
        assert!(Change::ReplaceSlot { slot: 0, cell: &new }.encode_for(&page, &mut encoded));
        let patch = Change::decode(&mut encoded.as_slice()).unwrap();
        assert!(encoded.len() < 25 && matches!(patch, Change::PatchSlot { slot: 0, .. }));
        let mut other = page.clone();
        apply(&mut other, &Change::ReplaceSlot { slot: 0, cell: &[3; 50] }).unwrap();
        let before = other.clone();
        assert_eq!(apply(&mut other, &patch), Err(ChangeError::OtherCell));
        assert_eq!(other, before, "a refused change leaves no trace");
        let mut patched = page.clone();
        apply(&mut patched, &patch).unwrap();
        assert_eq!(slots::cell(&patched, 0).unwrap(), new);
        assert_eq!(apply(&mut patched, &patch), Err(ChangeError::OtherCell), "it is applied once");
        apply(&mut patched, &Change::DeleteSlots { from: 0, to: 1 }).unwrap();
        assert_eq!(apply(&mut patched, &patch), Err(ChangeError::NoSuchSlot { slot: 0, slots: 0 }));
        assert_eq!(apply(&mut page_of(PageKind::Overflow, 4096), &patch), Err(ChangeError::WrongKind));
    }
}

#[test]
fn changes_suit_the_kind_of_page() {
    let mut leaf = page_of(PageKind::Leaf, 4096);
    let mut overflow = page_of(PageKind::Overflow, 4096);
    let mut blank = vec![0; 4096];
    let write = Change::WriteBytes { offset: 0, bytes: b"x" };
    let insert = Change::InsertSlot { slot: 0, cell: b"x" };
    assert_eq!(apply(&mut leaf, &write), Err(ChangeError::WrongKind));
    assert_eq!(apply(&mut overflow, &insert), Err(ChangeError::WrongKind));
    assert_eq!(apply(&mut blank, &write), Err(ChangeError::WrongKind));
    apply(&mut overflow, &Change::WriteBytes { offset: 4063, bytes: b"x" }).unwrap();
    assert_eq!(overflow[4095], b'x');
    let beyond = Change::WriteBytes { offset: 4064, bytes: b"x" };
    assert!(matches!(apply(&mut overflow, &beyond), Err(ChangeError::OutOfBounds { .. })));
}

#[test]
fn an_image_replaces_a_page_of_the_same_number_and_leaves_its_lsn() {
    let mut image = page_of(PageKind::Leaf, 4096);
    apply(&mut image, &Change::InsertSlot { slot: 0, cell: b"old" }).unwrap();
    let mut encoded = Vec::new();
    change::encode_image_head(&mut encoded, image.len());
    encoded.extend_from_slice(&image);
    assert_eq!(Change::decode(&mut encoded.as_slice()), Ok(Change::Image(&image)));

    let mut page = vec![0; 4096];
    header::clear(&mut page, PageId(9));
    header::set_lsn(&mut page, Lsn::new(5));
    apply(&mut page, &Change::Image(&image)).unwrap();
    assert_eq!(slots::cell(&page, 0).unwrap(), b"old");
    assert_eq!(header::lsn(&page), Lsn::new(5));
    header::clear(&mut page, PageId(10));
    assert!(matches!(apply(&mut page, &Change::Image(&image)), Err(ChangeError::WrongImage(_))));
    assert!(matches!(apply(&mut page, &Change::Image(&image[..100])), Err(ChangeError::WrongImage(_))));
}
