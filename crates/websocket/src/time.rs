//! Times as people and scripts write them.

/// A time as ISO 8601 in milliseconds since 1970: `2026-11-21T01:29:37.5Z`, `2026-11-21T02:29+01:00`. `None`: it is none, or before 1970.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(['T', 't'])?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, offset) = match clock.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => {
            let (at, sign) = match (clock.rfind('+'), clock.rfind('-')) {
                (Some(at), _) => (at, 1),
                (None, Some(at)) => (at, -1),
                (None, None) => return None,
            };
            let (clock, offset) = clock.split_at_checked(at)?;
            let (hours, minutes) = offset.get(1..)?.split_once(':')?;
            let minutes = number(hours)?.checked_mul(60)?.checked_add(number(minutes)?)?;
            (clock, sign * i64::try_from(minutes).ok()? * 60_000)
        }
    };
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (number(clock.next()?)?, number(clock.next()?)?);
    let (second, millis) = match clock.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (number(seconds)?, 0),
            Some((seconds, fraction)) => (number(seconds)?, fraction_millis(fraction)?),
        },
    };
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
    let ms = days(year, month, day)?
        .checked_mul(86_400_000)?
        .checked_add(of_day)?;
    u64::try_from(i64::try_from(ms).ok()?.checked_sub(offset)?).ok()
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn fraction_millis(digits: &str) -> Option<u64> {
    number(digits)?;
    let three: String = digits.chars().chain("00".chars()).take(3).collect();
    number(&three)
}

/// Days since 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // In years that begin in March: the leap day is then the last of its year.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn known_moments_are_read() {
        assert_eq!(parse("1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(parse("2000-02-29T00:00:00.123Z"), Some(951_782_400_123));
        assert_eq!(parse("2023-11-14T22:13:20Z"), Some(1_700_000_000_000));
        assert_eq!(parse("2023-11-14T23:13:20.5+01:00"), Some(1_700_000_000_500));
        assert_eq!(parse("2023-11-14T14:13:20.000-08:00"), Some(1_700_000_000_000));
        for ms in [0, 951_782_400_123, 1_700_000_000_000, 4_102_444_799_999] {
            assert_eq!(parse(&pharos_runtime::iso_time(ms)), Some(ms));
        }
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "x",
            "2023-11-14",
            "2023-13-14T00:00:00Z",
            "2023-11-14T25:00:00Z",
            "2023-11-14T00:00:00",
            "1969-12-31T23:59:59Z",
            "2023-11-14T00:00:00.Z",
            "1970-01-01T00:00:00+01:00",
            "2023-11-14T00:00:0é+01:00",
            "T",
            "-T:",
            "2023-11-14T00:00Zé",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
