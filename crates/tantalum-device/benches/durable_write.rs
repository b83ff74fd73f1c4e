//! Durable overwrites of 4 KiB at queue depth 1 on a preallocated file in the temporary directory (set `TMPDIR` to
//! choose the file system): the blocking `pwritev2(RWF_DSYNC)` of `write` against the io_uring of `submit` and `wait`.
//!
//! One runs after the other, so on a busy machine only several runs tell; the two should be within a few percent.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tantalum_device::{AlignedBuffer, Device, Durability, FileDevice};

const FILE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 4096;

fn durable_write(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = FileDevice::create(directory.path().join("bench"), FILE_BYTES, None).expect("64 MiB are free");
    println!("{}: {}", file.name(), file.capabilities());
    let buffer = Arc::new(AlignedBuffer::copy_from(&[0x5a; BLOCK_BYTES]));
    let mut offsets = (0..FILE_BYTES).step_by(BLOCK_BYTES).cycle();
    let mut next = move || offsets.next().expect("a cycle has no end");

    let mut group = criterion.benchmark_group("durable_write_4k");
    group.throughput(Throughput::Elements(1));
    group.bench_function("write", |bencher| {
        bencher.iter(|| file.write(next(), &[&buffer], Durability::Durable).expect("the write succeeds"));
    });
    group.bench_function("submit_and_wait", |bencher| {
        bencher.iter(|| {
            let write = file.submit(next(), Arc::clone(&buffer), 0..BLOCK_BYTES, Durability::Durable);
            let result = write.expect("the write begins").wait(black_box(Some(Duration::from_secs(60))));
            result.expect("it takes less than a minute").expect("the write succeeds");
        });
    });
    group.finish();
}

criterion_group!(benches, durable_write);
criterion_main!(benches);
