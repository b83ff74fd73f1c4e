//! How many device operations a second of wall time the emulation makes: random 4 KiB writes to a full page-mapped SSD,
//! in steady state with garbage collection.
//!
//! `cargo run --release -p tantalum-flash --example speed [PROFILE] [MIB]`

use tantalum_flash::{Nanos, Profile};
use tantalum_rt::Random;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "ssd-a".to_owned());
    let mib: u64 = arguments.next().map_or(Ok(256), |mib| mib.parse())?;
    let mut model = Profile::named(&name)?.with_capacity(mib << 20).build()?;
    let sectors = mib << 8;
    let mut random = Random::with_seed(1);
    let mut data = [1; 4096];
    let mut now: Nanos = 0;
    let mut write = |sector: u64| {
        data[..8].copy_from_slice(&sector.to_le_bytes());
        let outcome = model.write(now, sector * 4096, &data, false);
        // Eight writers, each with one write under way.
        now = now.max(outcome.done - (outcome.done - now) * 7 / 8);
        outcome.result.map(|()| model.counters())
    };
    for sector in 0..sectors {
        write(sector)?;
    }
    for _ in 0..2 * sectors {
        write(random.u64(0..sectors))?;
    }
    let operations = 1_000_000;
    let before = write(0)?;
    let start = tantalum_rt::now();
    let mut after = before;
    for _ in 0..operations {
        after = write(random.u64(0..sectors))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let copies = (after.gc_copies - before.gc_copies) as f64 / f64::from(operations);
    println!(
        "{name}, {mib} MiB: {:.0} operations a second of wall time; collection moved {copies:.2} sectors for each write",
        f64::from(operations) / seconds
    );
    Ok(())
}
