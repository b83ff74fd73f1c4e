//! Ports that are free.

use std::net::TcpListener;

use crate::error::{Error, Result};

/// So many ports of this machine that nothing listens at. Another program may take one before it is used; a server says so then.
///
/// # Errors
/// Those of the system.
pub fn free(count: usize) -> Result<Vec<u16>> {
    let failed = |error| Error::Other(format!("no free port: {error}"));
    // Held until all are known, so that no port is given twice.
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").map_err(failed)).collect::<Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr().map_err(failed)?.port())).collect()
}
