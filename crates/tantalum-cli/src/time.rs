//! Points of time as people write them: RFC 3339, which `tantalum_rt::rfc3339` writes.

use std::time::{Duration, SystemTime};

use toml::value::{Datetime, Offset};

const DAY_S: i64 = 86_400;

/// Reads a date and a time with its offset from UTC, such as `2026-11-22T01:02:03Z` or `2026-11-22 02:02:03.5+01:00`.
pub fn parse(text: &str) -> Result<SystemTime, String> {
    let refuse =
        || format!("{text:?} is no point of time; write it as 2026-11-22T01:02:03Z or 2026-11-22T02:02:03+01:00");
    let found: Datetime = text.parse().map_err(|_| refuse())?;
    let (Some(date), Some(time), Some(offset)) = (found.date, found.time, found.offset) else { return Err(refuse()) };
    let offset_s = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes) * 60,
    };
    let days = days_of(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let of_day = i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second);
    let seconds = u64::try_from(days * DAY_S + of_day - offset_s).map_err(|_| refuse())?;
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, time.nanosecond))
}

/// Days from 1970 to a day of the Gregorian calendar. Years are counted from March, so that the leap day ends one.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use tantalum_rt::rfc3339;

    use super::*;

    #[test]
    fn every_day_is_written_and_read_back() {
        for day in 0..60_000 {
            let time = SystemTime::UNIX_EPOCH + Duration::new(day * DAY_S as u64 + day % 86_400, 123_456_000);
            assert_eq!(parse(&rfc3339(time)), Ok(time), "{}", rfc3339(time));
        }
        assert_eq!(rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400)), "2000-02-29T00:00:00.000000Z");
    }

    #[test]
    fn offsets_count_and_nonsense_is_refused() {
        let seconds = |text| parse(text).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(seconds("1970-01-01T01:00:00+01:00"), 0);
        assert_eq!(seconds("1970-01-01 00:00:00-00:30"), 1800);
        for text in
            ["", "2026-11-22", "2026-11-22T01:02:03", "01:02:03", "2026-13-01T00:00:00Z", "1969-01-01T00:00:00Z"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
