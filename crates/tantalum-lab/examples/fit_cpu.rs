//! Fits the one free parameter of the transaction experiments: what a call to the engine takes of a hardware thread.
//!
//! For each number of microseconds given, TPC-C runs with 1 to 128 clients with its log on the disk and on the ideal device. The paper publishes the least and the greatest share that the disk reaches of the ideal
//! (FlashLogging, section 5.2), and nothing between. The best number is the one whose least and greatest share are, as
//! ratios, the nearest to the published ones: the square root of the sum of the squares of both logarithms is smallest.
//!
//! `cargo run --release -p tantalum-lab --example fit_cpu -- 40 60 80`

use std::time::Duration;

use tantalum_lab::server::{CLIENTS, Cell, LogSetup, Server, Size};

/// `fl.fig11.disk_over_ideal`.
const PUBLISHED: [f64; 2] = [0.112, 0.299];
const SEED: u64 = 42;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let candidates = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<f64>, _>>()?;
    let server = Server::load(Size::PAPER, SEED, &|_| ())?;
    for us in candidates {
        let cell = |profile, clients| Cell {
            cpu_per_call: Duration::from_secs_f64(us / 1e6),
            ..Cell::of_paper(LogSetup::original(profile), clients, SEED)
        };
        let rates = |profile| -> Result<Vec<f64>, _> {
            let runs = server.run_on_disk(profile, &CLIENTS.map(|clients| cell(profile, clients)), &|_| ());
            runs.map(|runs| runs.iter().map(|run| run.new_orders_per_minute).collect())
        };
        let (disk, ideal) = (rates("hdd-10k")?, rates("hdd-10k-cached")?);
        let shares: Vec<f64> = disk.iter().zip(&ideal).map(|(disk, ideal)| disk / ideal).collect();
        let [least, most] = [shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max)];
        let off = (least / PUBLISHED[0]).ln().hypot((most / PUBLISHED[1]).ln());
        println!("{us} us: {least:.3} to {most:.3}, off by {off:.3}");
        for ((clients, share), (disk, ideal)) in CLIENTS.iter().zip(&shares).zip(disk.iter().zip(&ideal)) {
            println!("  {clients:>3} clients: disk {disk:>6.0}, ideal {ideal:>6.0} NOTPM: {share:.3}");
        }
    }
    Ok(())
}
