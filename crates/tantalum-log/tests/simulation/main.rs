//! The log on simulated devices: random load and power cuts, failing devices, damage, space.

mod damage;
mod faults;
mod hiding;
mod power_cuts;
mod space;
mod world;
