//! Pages from another time, as a device leaves them that loses a write.

use tantalum_store::{Change, PageKind, page::header};

use super::*;

#[test]
fn a_value_with_a_part_from_another_time_is_damaged() {
    let bed = Bed::new(4096, 64);
    let row = key(1, 20);
    commit(&bed, &[(row.clone(), Some(vec![7; 9000]))]).unwrap();
    assert_eq!(read(&bed.tree, &row), Some(vec![7; 9000]));
    let is_part = |page: &PageId| header::kind(&bed.pool.pin(*page).unwrap().read()).unwrap() == PageKind::Overflow;
    let parts: Vec<PageId> = bed.used_pages().into_iter().filter(is_part).collect();
    assert_eq!(parts.len(), 3);

    // Sound in itself, with the same bytes, but not of the record that wrote the others.
    let mut group = ChangeGroup::new(&bed.pool);
    let page = bed.pool.pin(parts[1]).unwrap().write();
    let bytes = header::body(&page)[..8].to_vec();
    let index = group.add(page);
    group.change(index, Change::WriteBytes { offset: 0, bytes: &bytes }).unwrap();
    group.append(0, 0).unwrap();
    let result = bed.tree.read_bytes(&row, |value| value.map(<[u8]>::to_vec));
    assert!(matches!(&result, Err(error) if error.kind() == crate::ErrorKind::Corrupt), "{result:?}");
}
