//! A file of acknowledged orders, kept outside the database: what a later run must find there, whatever happened to the
//! process in between.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, ErrorKind, Write},
    path::Path,
};

use tantalum_workloads::tpcc::{Observer, Output, Tpcc};

use crate::error::{Error, Result};

/// Checks that all orders of the file are in the database, and gives their number. A file that does not exist yet
/// has none; a last line without its end was being written when the process died, and counts for nothing.
pub fn check(path: &Path, tpcc: &Tpcc) -> Result<u64> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Error::file("open", path, error)),
    };
    let (mut reader, mut line, mut count) = (BufReader::new(file), String::new(), 0);
    while reader.read_line(&mut line).map_err(|error| Error::file("read", path, error))? > 0 {
        if line.ends_with('\n') {
            count += 1;
            let (w, d, o) =
                parse(&line).ok_or_else(|| Error::file("read", path, format!("line {count} is no order")))?;
            if !tpcc.has_order(w, d, o)? {
                return Err(Error::Other(format!(
                    "order {o} of district {d}, warehouse {w} was acknowledged ({}:{count}) and is not there",
                    path.display()
                )));
            }
        }
        line.clear();
    }
    Ok(count)
}

/// Appends each acknowledged order to the file, in one call each: what the system has taken survives the process.
pub fn record(path: &Path) -> Result<Observer> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|error| Error::file("open", path, error))?;
    let path = path.to_owned();
    Ok(Box::new(move |output| {
        let Output::NewOrder { warehouse, district, order, .. } = output else { return };
        let line = format!("{warehouse} {district} {order}\n");
        if let Err(error) = (&file).write_all(line.as_bytes()) {
            eprintln!("cannot write to {}: {error}", path.display());
        }
    }))
}

fn parse(line: &str) -> Option<(u32, u8, u32)> {
    let mut numbers = line.split_whitespace();
    let order = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().is_none().then_some(order)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines() {
        assert_eq!(parse("1 2 3001\n"), Some((1, 2, 3001)));
        for bad in ["", "1 2", "1 2 x", "1 2 3 4", "1 256 3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
