//! Clusters of several members, in this process and of the program itself.

mod common;
mod etcdctl;
mod faults;
mod history;
mod members;
mod processes;
mod proxy;
mod requests;
mod restored;
mod tls;
