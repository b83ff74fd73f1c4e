//! The engine through its public interface: on real files, and on memory devices in simulation.

mod api;
mod concurrent;
mod damage;
mod files;
mod space;
mod support;
