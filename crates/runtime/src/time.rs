//! Time for people, and in milliseconds.

use std::time::Duration;

/// Whole milliseconds.
#[must_use]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A time in milliseconds since 1970 as ISO 8601 in UTC: `2026-11-21T01:29:37.000Z`. Stats show it.
#[must_use]
pub fn iso_time(ms: u64) -> String {
    let (seconds, millis) = (ms / 1000, ms % 1000);
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years: the leap day is then the last of its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::iso_time;

    #[test]
    fn known_moments_come_out() {
        assert_eq!(iso_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_time(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(iso_time(1_700_000_000_000), "2023-11-14T22:13:20.000Z");
    }
}
