//! The log on simulated devices: random load and power cuts, failing devices, devices that come and go, damage, space,
//! layouts.

mod archive;
mod damage;
mod faults;
mod group_commit;
mod growth;
mod hiding;
mod members;
mod mirror;
mod newcomers;
mod operator;
mod plan;
mod power_cuts;
mod power_cuts_in_changes;
mod reader;
mod rebuild;
mod recorder;
mod single;
mod space;
mod steps;
mod striped;
mod world;
