//! Files on the real file system of the temporary directory.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Access, AlignedBuffer, Device, Durability, Error, ErrorKind, FileDevice, Partition};
use tempfile::TempDir;

const BLOCK: usize = 4096;

fn create(blocks: u64) -> (TempDir, PathBuf, FileDevice) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    let device = FileDevice::create(&path, blocks * BLOCK as u64, None).unwrap();
    (directory, path, device)
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    device.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_created_file_is_zeros_and_reports_progress() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    let size = (2 << 20) + BLOCK as u64;
    let mut steps = Vec::new();
    let device = FileDevice::create(&path, size, Some(&mut |done, total| steps.push((done, total)))).unwrap();
    assert_eq!(steps, [(1 << 20, size), (2 << 20, size), (size, size)]);
    assert_eq!(device.capacity_bytes(), size);
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    assert!(read(&device, 0, size as usize).iter().all(|&byte| byte == 0));
    assert!(device.capabilities().logical_block <= 4096);
    assert_eq!(device.name(), path.to_str().unwrap());
}

#[test]
fn creating_over_a_file_is_refused_and_leaves_it_alone() {
    let (_directory, path, device) = create(1);
    device.write(0, &[&[1; BLOCK]], Durability::Durable).unwrap();
    let error = FileDevice::create(&path, BLOCK as u64, None).unwrap_err();
    assert!(error.is_io() && error.to_string().starts_with("cannot create"), "{error}");
    assert_eq!(read(&device, 0, BLOCK), [1; BLOCK]);
}

#[test]
fn creating_without_room_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    let error = FileDevice::create(&path, 1 << 60, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(!path.exists());
    assert!(matches!(FileDevice::create(&path, 4097, None), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(!path.exists());
}

#[test]
fn vectored_writes_are_concatenated_whatever_their_alignment() {
    let (_directory, path, device) = create(8);
    let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| (i % 253) as u8).collect();
    let aligned = AlignedBuffer::copy_from(&bytes);
    device.write(0, &[&aligned[..BLOCK], &aligned[BLOCK..]], Durability::Cached).unwrap();
    device.write(3 * BLOCK as u64, &[&bytes[..1], &bytes[1..5000], &bytes[5000..]], Durability::Durable).unwrap();
    device.write(0, &[], Durability::Durable).unwrap();
    device.flush().unwrap();
    drop(device);

    let device = FileDevice::open(path, Access::ReadOnly).unwrap();
    let mut unaligned = vec![0; 1 + 6 * BLOCK];
    device.read(0, &mut unaligned[1..]).unwrap();
    assert_eq!(unaligned[1..=3 * BLOCK], bytes);
    assert_eq!(unaligned[1 + 3 * BLOCK..], bytes);
}

#[test]
fn more_pieces_than_one_system_call_takes_are_one_write() {
    let (_directory, _path, device) = create(3);
    let pieces = vec![&[3u8; 4][..]; 2 * BLOCK / 4];
    device.write(BLOCK as u64, &pieces, Durability::Cached).unwrap();
    assert_eq!(read(&device, BLOCK as u64, 2 * BLOCK), [3; 2 * BLOCK]);
}

#[test]
fn many_submitted_writes_complete_in_any_order_of_waiting() {
    let (_directory, _path, device) = create(32);
    let mut writes = Vec::new();
    for i in 0..32u64 {
        // An odd start makes the device copy; an aligned one does not.
        let start = if i % 2 == 0 { 0 } else { 1 };
        let mut buffer = AlignedBuffer::zeroed(start + BLOCK);
        buffer.fill(i as u8 + 1);
        let durability = if i % 3 == 0 { Durability::Durable } else { Durability::Cached };
        writes.push(device.submit(i * BLOCK as u64, Arc::new(buffer), start..start + BLOCK, durability).unwrap());
    }
    for write in writes.iter_mut().rev() {
        loop {
            if let Some(result) = write.wait(Some(Duration::from_micros(50))) {
                break result.unwrap();
            }
        }
    }
    for i in 0..32u64 {
        assert_eq!(read(&device, i * BLOCK as u64, BLOCK), [i as u8 + 1; BLOCK]);
    }
}

#[test]
fn a_write_that_is_done_says_so_and_can_still_be_waited_for() {
    let (_directory, _path, device) = create(1);
    let buffer = Arc::new(AlignedBuffer::copy_from(&[5; BLOCK]));
    let mut write = device.submit(0, buffer, 0..BLOCK, Durability::Durable).unwrap();
    while !write.is_done() {
        tantalum_rt::yield_now();
    }
    assert!(write.is_done());
    write.wait(Some(Duration::ZERO)).unwrap().unwrap();
    assert_eq!(read(&device, 0, BLOCK), [5; BLOCK]);
}

#[test]
fn a_write_submitted_by_a_thread_that_ended_completes() {
    let (_directory, _path, device) = create(4);
    let device = Arc::new(device);
    let submitter = Arc::clone(&device);
    let writes = tantalum_rt::spawn("submitter", move || {
        let submit = |i: u64| {
            let buffer = Arc::new(AlignedBuffer::copy_from(&[6; BLOCK]));
            submitter.submit(i * BLOCK as u64, buffer, 0..BLOCK, Durability::Durable).unwrap()
        };
        (0..4).map(submit).collect::<Vec<_>>()
    });
    for mut write in writes.join().unwrap() {
        write.wait(None).unwrap().unwrap();
    }
    assert_eq!(read(&*device, 0, 4 * BLOCK), [6; 4 * BLOCK]);
}

#[test]
fn dropped_writes_still_happen_before_the_file_is_closed() {
    let (_directory, path, device) = create(16);
    for i in 0..16u64 {
        let buffer = Arc::new(AlignedBuffer::copy_from(&[i as u8 + 1; BLOCK]));
        drop(device.submit(i * BLOCK as u64, buffer, 0..BLOCK, Durability::Durable).unwrap());
    }
    drop(device);
    let bytes = fs::read(path).unwrap();
    for (i, block) in bytes.chunks(BLOCK).enumerate() {
        assert!(block.iter().all(|&byte| byte == i as u8 + 1), "block {i}");
    }
}

#[test]
fn partitions_of_one_file_are_written_at_the_same_time() {
    let (_directory, _path, device) = create(64);
    let device: Arc<dyn Device> = Arc::new(device);
    let tasks: Vec<_> = Partition::split(Arc::clone(&device), 4)
        .unwrap()
        .into_iter()
        .enumerate()
        .map(|(k, partition)| {
            tantalum_rt::spawn(format!("partition {k}"), move || {
                let buffer = Arc::new(AlignedBuffer::copy_from(&[k as u8 + 1; BLOCK]));
                for i in 0..16u64 {
                    let offset = i * BLOCK as u64;
                    let mut write =
                        partition.submit(offset, Arc::clone(&buffer), 0..BLOCK, Durability::Durable).unwrap();
                    write.wait(None).unwrap().unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    for k in 0..4 {
        let bytes = read(&*device, k * 16 * BLOCK as u64, 16 * BLOCK);
        assert!(bytes.iter().all(|&byte| byte == k as u8 + 1));
    }
}

#[test]
fn ranges_are_checked() {
    let (_directory, _path, device) = create(2);
    let block = device.capabilities().logical_block;
    let mut bytes = [0; BLOCK];
    let misaligned = Error::misaligned(device.name(), 1, bytes.len() as u64, block);
    assert_eq!(device.read(1, &mut bytes).unwrap_err().to_string(), misaligned.to_string());
    assert!(matches!(device.read(0, &mut bytes[..1]), Err(error) if error.kind() == ErrorKind::InvalidInput));
    let past = Error::out_of_range(device.name(), 8192, 4096, 8192);
    assert_eq!(device.read(8192, &mut bytes).unwrap_err().to_string(), past.to_string());
    assert!(
        matches!(device.write(8192, &[&bytes], Durability::Cached), Err(error) if error.kind() == ErrorKind::OutOfRange)
    );
    assert!(matches!(device.discard(8192, 4096), Err(error) if error.kind() == ErrorKind::OutOfRange));
    let last = u64::MAX - u64::MAX % u64::from(block);
    assert!(matches!(device.read(last, &mut bytes), Err(error) if error.kind() == ErrorKind::OutOfRange));
    let buffer = Arc::new(AlignedBuffer::zeroed(BLOCK));
    assert!(matches!(
        device.submit(8192, buffer, 0..BLOCK, Durability::Cached).map(drop),
        Err(error) if error.kind() == ErrorKind::OutOfRange
    ));
}

#[test]
fn a_truncated_file_is_named_with_what_was_expected() {
    let (_directory, path, device) = create(4);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * BLOCK as u64).unwrap();
    let error = device.read(BLOCK as u64, &mut [0; 2 * BLOCK]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(
        error.to_string().contains("expected 8192 bytes at byte 4096, but the file ends after 4096 of them"),
        "{error}"
    );
    assert!(error.to_string().contains(path.to_str().unwrap()));
}

#[test]
fn a_file_opened_for_reading_is_never_changed() {
    let (_directory, path, device) = create(2);
    drop(device);
    let device = FileDevice::open(&path, Access::ReadOnly).unwrap();
    let buffer = Arc::new(AlignedBuffer::zeroed(BLOCK));
    assert_eq!(read(&device, 0, BLOCK), [0; BLOCK]);
    for result in [
        device.write(0, &[&[1; BLOCK]], Durability::Cached),
        device.submit(0, buffer, 0..BLOCK, Durability::Durable).map(drop),
        device.flush(),
        device.discard(0, BLOCK as u64),
        device.grow(1 << 20),
    ] {
        assert!(matches!(result, Err(error) if error.kind() == ErrorKind::ReadOnly));
    }
}

#[test]
fn growth_adds_zeros_and_keeps_the_rest() {
    grows_by(&|device, bytes| device.grow(bytes));
}

#[test]
fn reserving_adds_zeros_and_keeps_the_rest() {
    grows_by(&|device, bytes| device.reserve(bytes));
}

fn grows_by(grow: &dyn Fn(&FileDevice, u64) -> tantalum_device::Result<()>) {
    let (_directory, path, device) = create(2);
    device.write(BLOCK as u64, &[&[8; BLOCK]], Durability::Durable).unwrap();
    grow(&device, 4 * BLOCK as u64).unwrap();
    grow(&device, 3 * BLOCK as u64).unwrap();
    assert_eq!(device.capacity_bytes(), 4 * BLOCK as u64);
    assert_eq!(read(&device, BLOCK as u64, BLOCK), [8; BLOCK]);
    assert_eq!(read(&device, 2 * BLOCK as u64, 2 * BLOCK), [0; 2 * BLOCK]);
    device.write(3 * BLOCK as u64, &[&[9; BLOCK]], Durability::Durable).unwrap();

    assert_eq!(grow(&device, 1 << 60).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(matches!(grow(&device, (4 * BLOCK + 1) as u64), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert_eq!(device.capacity_bytes(), 4 * BLOCK as u64);
    assert_eq!(read(&device, 3 * BLOCK as u64, BLOCK), [9; BLOCK]);
    drop(device);
    assert_eq!(FileDevice::open(path, Access::ReadWrite).unwrap().capacity_bytes(), 4 * BLOCK as u64);
}

#[test]
fn shrinking_gives_the_rest_back() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, path, device) = create(16);
    device.write(0, &[&[7; BLOCK]], Durability::Durable).unwrap();
    device.write(8 * BLOCK as u64, &[&[8; BLOCK]], Durability::Durable).unwrap();
    assert!(matches!(device.shrink(1), Err(error) if error.kind() == ErrorKind::InvalidInput));
    device.shrink(17 * BLOCK as u64).unwrap();
    assert_eq!(device.capacity_bytes(), 16 * BLOCK as u64);
    device.shrink(2 * BLOCK as u64).unwrap();
    assert_eq!((device.capacity_bytes(), fs::metadata(&path).unwrap().len()), (2 * BLOCK as u64, 2 * BLOCK as u64));
    assert!(fs::metadata(&path).unwrap().blocks() * 512 <= 2 * BLOCK as u64 + 4096);
    assert!(
        matches!(device.read(2 * BLOCK as u64, &mut AlignedBuffer::zeroed(BLOCK)), Err(error) if error.kind() == ErrorKind::OutOfRange)
    );
    device.grow(9 * BLOCK as u64).unwrap();
    assert_eq!(read(&device, 0, BLOCK), [7; BLOCK]);
    assert_eq!(read(&device, 8 * BLOCK as u64, BLOCK), [0; BLOCK]);
}

#[test]
fn a_size_between_blocks_is_rounded_down() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd");
    fs::write(&path, vec![1; 2 * BLOCK + 100]).unwrap();
    assert_eq!(FileDevice::open(&path, Access::ReadOnly).unwrap().capacity_bytes(), 2 * BLOCK as u64);
}

#[test]
fn discard_leaves_a_file_allocated() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, path, device) = create(16);
    let allocated = fs::metadata(&path).unwrap().blocks();
    device.discard(0, 8 * BLOCK as u64).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().blocks(), allocated);
}

#[test]
fn a_range_that_is_released_takes_no_space_and_can_be_written_again() {
    use std::os::unix::fs::MetadataExt;
    let (_directory, path, device) = create(16);
    device.write(0, &[&[7; 16 * BLOCK]], Durability::Durable).unwrap();
    let allocated = || fs::metadata(&path).unwrap().blocks() * 512;
    assert!(allocated() >= 16 * BLOCK as u64);
    device.release(4 * BLOCK as u64, 0).unwrap();
    device.release(4 * BLOCK as u64, 8 * BLOCK as u64).unwrap();
    assert!(allocated() < 10 * BLOCK as u64, "{} bytes", allocated());
    assert_eq!(device.capacity_bytes(), 16 * BLOCK as u64);
    for block in 0..16 {
        let is_released = (4..12).contains(&block);
        assert_eq!(read(&device, block * BLOCK as u64, BLOCK), [if is_released { 0 } else { 7 }; BLOCK]);
    }
    device.write(5 * BLOCK as u64, &[&[8; BLOCK]], Durability::Durable).unwrap();
    assert_eq!(read(&device, 5 * BLOCK as u64, BLOCK), [8; BLOCK]);
    assert!(
        matches!(device.release(12 * BLOCK as u64, 5 * BLOCK as u64), Err(error) if error.kind() == ErrorKind::OutOfRange)
    );
    let read_only = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(matches!(read_only.release(0, BLOCK as u64), Err(error) if error.kind() == ErrorKind::ReadOnly));
}

#[test]
fn other_kinds_of_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = FileDevice::open(directory.path(), Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("is a directory; expected a regular file"), "{error}");
    let error = FileDevice::open("/dev/null", Access::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("is a character device; expected a regular file"), "{error}");
    let error = FileDevice::open(directory.path().join("missing"), Access::ReadWrite).unwrap_err();
    let is_not_found = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::NotFound;
    assert!(error.cause().is_some_and(is_not_found) && error.to_string().contains("missing"), "{error}");
}
