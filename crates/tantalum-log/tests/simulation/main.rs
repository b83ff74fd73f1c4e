//! The log on simulated devices: random load and power cuts, failing devices, damage, space, layouts.

mod damage;
mod faults;
mod hiding;
mod power_cuts;
mod recorder;
mod single;
mod space;
mod striped;
mod world;
