//! DuraSSD's profile, and those of the drives beside it, against "Durable Write Cache in Flash Memory SSD" (SIGMOD
//! 2014), Tables 1 and 2. Five of DuraSSD's cells were used for fitting (the profile lists them); the others are
//! predictions.

use tantalum_flash::{Model, Nanos, Profile};
use tantalum_rt::Random;

/// Random operations a second by one or more threads, each with one operation under way.
struct Workload {
    page_bytes: u64,
    threads: usize,
    /// Writes of a thread between flushes; 0 for none.
    flush_every: u64,
    reads: bool,
}

const MIB: u64 = 64;

fn drive(edit: impl Fn(String) -> String) -> Box<dyn Model> {
    named("durassd", edit)
}

fn named(name: &str, edit: impl Fn(String) -> String) -> Box<dyn Model> {
    let text = edit(Profile::text(name).expect("the profile comes with the crate"));
    let profile = Profile::parse(name, &text).expect("the edited profile parses");
    profile.with_capacity(MIB << 20).build().expect("the edited profile is possible")
}

fn run(model: &mut dyn Model, workload: &Workload) -> f64 {
    let mut random = Random::with_seed(1);
    let mut buffer = vec![1; workload.page_bytes as usize];
    let mut threads: Vec<Nanos> = vec![0; workload.threads];
    let operations = 8_192u64;
    // Half of the medium is written, so that reads find something and collection is no part of it.
    for page in 0..(MIB << 19) / workload.page_bytes {
        let done = model.write(threads[0], page * workload.page_bytes, &buffer, false).done;
        threads.fill(done);
    }
    let start = model.flush(threads[0]).done;
    threads.fill(start);
    for operation in 1..=operations {
        let (thread, &now) = threads.iter().enumerate().min_by_key(|&(index, &now)| (now, index)).expect("threads");
        let offset = random.u64(0..(MIB << 19) / workload.page_bytes) * workload.page_bytes;
        let mut done = match workload.reads {
            true => model.read(now, offset, &mut buffer).done,
            false => model.write(now, offset, &buffer, false).done,
        };
        if workload.flush_every > 0 && operation % workload.flush_every == 0 {
            done = model.flush(done).done;
        }
        threads[thread] = done;
    }
    let end = threads.into_iter().max().expect("threads");
    operations as f64 / ((end - start) as f64 / 1e9)
}

fn check(what: &str, published: &[f64], mut measure: impl FnMut(usize) -> f64) {
    let mut failures = Vec::new();
    let mut measured = Vec::new();
    for (cell, &published) in published.iter().enumerate() {
        let found = measure(cell);
        let deviation = found / published - 1.0;
        println!("{what}, cell {cell}: published {published}, measured {found:.0}, {:+.0} %", deviation * 100.0);
        measured.push(found);
        if deviation.abs() > 0.25 {
            failures.push(cell);
        }
    }
    assert!(failures.is_empty(), "{what}: cells {failures:?} deviate by more than 25 %: {measured:.0?}");
}

const FLUSH_EVERY: [u64; 9] = [1, 4, 8, 16, 32, 64, 128, 256, 0];

fn table_1(model: impl Fn() -> Box<dyn Model>, what: &str, published: &[f64; 9], barriers: bool) {
    check(what, published, |cell| {
        let flush_every = if barriers { FLUSH_EVERY[cell] } else { 0 };
        run(&mut *model(), &Workload { page_bytes: 4096, threads: 1, flush_every, reads: false })
    });
}

#[test]
fn table_1_cache_on() {
    let published = [225.0, 836.0, 1556.0, 2556.0, 5020.0, 6969.0, 10582.0, 12647.0, 15319.0];
    table_1(|| drive(|text| text), "cache on", &published, true);
    let published = [14484.0, 14800.0, 14813.0, 14824.0, 14840.0, 14863.0, 15063.0, 15181.0, 15458.0];
    table_1(|| drive(|text| text), "cache on, no barrier", &published, false);
}

#[test]
fn table_1_cache_off() {
    let published = [249.0, 330.0, 438.0, 467.0, 482.0, 490.0, 495.0, 497.0, 498.0];
    table_1(|| drive(|text| text.replace("\"write-back\"", "\"write-through\"")), "cache off", &published, true);
}

/// Of these drives nothing is known but their rows: the rows' shape must come out, and what was fitted.
#[test]
fn table_1_other_drives() {
    let rows = [
        ("ssd-a", "\"write-through\"", [168, 332, 397, 441, 463, 479, 480, 490, 494]),
        ("ssd-a", "\"write-back\"", [256, 759, 1297, 2219, 3595, 5094, 6794, 8782, 11681]),
        ("ssd-b", "\"write-through\"", [603, 732, 889, 995, 1042, 1082, 1114, 1124, 1157]),
        ("ssd-b", "\"write-back\"", [655, 1762, 2319, 3152, 4046, 5177, 6318, 8575, 8456]),
    ];
    for (name, mode, published) in rows {
        let model = || named(name, |text| text.replace("\"write-back\"", mode));
        let measure =
            |flush_every| run(&mut *model(), &Workload { page_bytes: 4096, threads: 1, flush_every, reads: false });
        let measured = FLUSH_EVERY.map(measure);
        println!("{name}, {mode}: published {published:?}, measured {measured:.0?}");
        assert!(measured.is_sorted(), "{name}, {mode}: fewer flushes are never slower: {measured:.0?}");
        let fitted: &[usize] = if mode.contains("back") { &[0, 8] } else { &[8] };
        for &cell in fitted {
            let deviation = measured[cell] / f64::from(published[cell]) - 1.0;
            assert!(deviation.abs() < 0.25, "{name}, {mode}, cell {cell}: {measured:.0?}");
        }
    }
}

#[test]
fn table_2() {
    let pages = [16384, 8192, 4096];
    let measure = |threads, flush_every, reads| {
        move |cell: usize| {
            run(&mut *drive(|text| text), &Workload { page_bytes: pages[cell], threads, flush_every, reads })
        }
    };
    check("reads, 128 threads", &[29870.0, 57847.0, 89083.0], measure(128, 0, true));
    check("writes, fsync after each", &[196.0, 206.0, 225.0], measure(1, 1, false));
    check("writes, fsync after 256", &[4563.0, 7978.0, 12647.0], measure(1, 256, false));
    check("writes, 128 threads, no barrier", &[13446.0, 25546.0, 49009.0], measure(128, 0, false));
}
