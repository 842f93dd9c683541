//! Values with units, as people write them: `64MiB`, `250ms`, `unlimited`.
//!
//! Always true: what [`Value::show`] prints, [`Value::parse`] reads back to the same value, except of a [`Secret`].

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A setting's type: how it is read, printed and named.
pub trait Value: Sized {
    /// What to call it in the reference page.
    const KIND: &'static str;

    /// Reads the text of a file, an environment variable or a flag.
    ///
    /// # Errors
    /// A sentence that says what was expected.
    fn parse(text: &str) -> Result<Self, String>;

    /// Prints it in the form that [`parse`](Self::parse) reads.
    fn show(&self) -> String;
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Byte units, biggest first; the first of equal size is the one printed.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// `count` mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// `count` kibibytes.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }
}

impl Value for ByteSize {
    const KIND: &'static str = "size";

    fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("'{text}' is no size: write bytes, or a number with B, KB, MB, GB, KiB, MiB or GiB");
        let (number, unit) = split_unit(text);
        let number: u64 = number.parse().map_err(|_| expected())?;
        let scale = if unit.is_empty() {
            1
        } else {
            let known = BYTE_UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit));
            known.map(|(_, scale)| *scale).ok_or_else(expected)?
        };
        let bytes = number
            .checked_mul(scale)
            .ok_or_else(|| format!("'{text}' is too large"))?;
        Ok(Self(bytes))
    }

    fn show(&self) -> String {
        if self.0 == 0 {
            return "0".into();
        }
        let exact = BYTE_UNITS.iter().find(|(_, scale)| self.0.is_multiple_of(*scale));
        let (unit, scale) = exact.copied().unwrap_or(("B", 1));
        format!("{}{unit}", self.0 / scale)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

/// Time units, biggest first, in nanoseconds.
const TIME_UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Value for Duration {
    const KIND: &'static str = "duration";

    fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("'{text}' is no duration: write a number with ms, s, m, h or d, such as 30s");
        let (number, unit) = split_unit(text);
        let number: u128 = number.parse().map_err(|_| expected())?;
        if number == 0 && unit.is_empty() {
            return Ok(Self::ZERO);
        }
        let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit);
        let scale = scale.map(|(_, scale)| *scale).ok_or_else(expected)?;
        let nanos = number
            .checked_mul(scale)
            .and_then(|nanos| u64::try_from(nanos).ok());
        nanos
            .map(Self::from_nanos)
            .ok_or_else(|| format!("'{text}' is too long"))
    }

    fn show(&self) -> String {
        let nanos = self.as_nanos();
        if nanos == 0 {
            return "0s".into();
        }
        let exact = TIME_UNITS.iter().find(|(_, scale)| nanos.is_multiple_of(*scale));
        let (unit, scale) = exact.copied().unwrap_or(("ns", 1));
        format!("{}{unit}", nanos / scale)
    }
}

/// A limit that may be absent: `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit<T> {
    /// No limit.
    Unlimited,
    /// At most this.
    At(T),
}

impl<T> Limit<T> {
    /// The limit as an option; `None` when there is none.
    #[must_use]
    pub fn as_option(&self) -> Option<&T> {
        match self {
            Self::Unlimited => None,
            Self::At(value) => Some(value),
        }
    }
}

impl From<Option<u64>> for Limit<ByteSize> {
    fn from(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::Unlimited, |bytes| Self::At(ByteSize(bytes)))
    }
}

impl From<Limit<ByteSize>> for Option<u64> {
    fn from(limit: Limit<ByteSize>) -> Self {
        limit.as_option().map(|size| size.0)
    }
}

impl From<Option<Duration>> for Limit<Duration> {
    fn from(time: Option<Duration>) -> Self {
        time.map_or(Self::Unlimited, Self::At)
    }
}

impl From<Limit<Duration>> for Option<Duration> {
    fn from(limit: Limit<Duration>) -> Self {
        limit.as_option().copied()
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> Self {
        size.0
    }
}

impl Value for Limit<ByteSize> {
    const KIND: &'static str = "size or unlimited";

    fn parse(text: &str) -> Result<Self, String> {
        parse_limit(text)
    }

    fn show(&self) -> String {
        show_limit(self)
    }
}

impl Value for Limit<Duration> {
    const KIND: &'static str = "duration or unlimited";

    fn parse(text: &str) -> Result<Self, String> {
        parse_limit(text)
    }

    fn show(&self) -> String {
        show_limit(self)
    }
}

fn parse_limit<T: Value>(text: &str) -> Result<Limit<T>, String> {
    if text == "unlimited" {
        return Ok(Limit::Unlimited);
    }
    let limit = T::parse(text).map(Limit::At);
    limit.map_err(|reason| format!("{reason}, or 'unlimited'"))
}

fn show_limit<T: Value>(limit: &Limit<T>) -> String {
    limit.as_option().map_or_else(|| "unlimited".into(), T::show)
}

impl Value for bool {
    const KIND: &'static str = "true or false";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("'{text}' is neither true nor false")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    const KIND: &'static str = "number";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is no whole number from 0 to {}", Self::MAX))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for SocketAddr {
    const KIND: &'static str = "address";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is no address: write IP:PORT, such as 127.0.0.1:6650"))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "path";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path cannot be empty".into());
        }
        Ok(Self::from(text))
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Option<SocketAddr> {
    const KIND: &'static str = "address or empty";

    fn parse(text: &str) -> Result<Self, String> {
        (!text.is_empty()).then(|| SocketAddr::parse(text)).transpose()
    }

    fn show(&self) -> String {
        self.map_or_else(String::new, |address| address.show())
    }
}

impl Value for Option<PathBuf> {
    const KIND: &'static str = "path or empty";

    fn parse(text: &str) -> Result<Self, String> {
        (!text.is_empty()).then(|| PathBuf::parse(text)).transpose()
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, PathBuf::show)
    }
}

/// Several paths; none is a value too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(pub Vec<PathBuf>);

impl Value for Paths {
    const KIND: &'static str = "paths";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let paths = text.split(',').map(|path| PathBuf::parse(path.trim()));
        paths
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(|_| format!("'{text}' has an empty path: write them with commas between"))
    }

    fn show(&self) -> String {
        let shown: Vec<String> = self.0.iter().map(PathBuf::show).collect();
        shown.join(",")
    }
}

/// Several names; none is a value too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl Value for Names {
    const KIND: &'static str = "names";

    fn parse(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// A key, or where it is: `file:///path`, `data:;base64,…`, a path, or base64. What may be the key itself is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

/// What stands for a secret where settings are shown.
const HIDDEN: &str = "(hidden)";

impl Secret {
    /// The text as it was set. Not to be shown.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is not set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Value for Secret {
    const KIND: &'static str = "key or file";

    fn parse(text: &str) -> Result<Self, String> {
        if text == HIDDEN {
            return Err(format!("{HIDDEN} is how a secret is shown, and none itself"));
        }
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> String {
        match self.0.starts_with("file:") || self.0.is_empty() {
            true => self.0.clone(),
            false => HIDDEN.to_owned(),
        }
    }
}

/// A share from 0 to 1, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(pub u8);

impl Value for Share {
    const KIND: &'static str = "share";

    fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("'{text}' is no share: write a number from 0 to 1 with two digits, such as 0.25");
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit());
        let whole: u8 = whole.parse().map_err(|_| expected())?;
        let percent: u8 = format!("{part:0<2}").parse().map_err(|_| expected())?;
        let share = whole
            .checked_mul(100)
            .and_then(|whole| whole.checked_add(percent));
        share
            .filter(|share| *share <= 100 && digits)
            .map(Self)
            .ok_or_else(expected)
    }

    fn show(&self) -> String {
        let text = format!("{}.{:02}", self.0 / 100, self.0 % 100);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl Value for String {
    const KIND: &'static str = "text";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

/// Splits `12 MiB` into its digits and its unit.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("10MB", 10_000_000),
            ("10 MiB", 10 << 20),
            ("2gib", 2 << 30),
            ("7B", 7),
        ] {
            assert_eq!(ByteSize::parse(text), Ok(ByteSize(bytes)), "{text}");
        }
        for text in [
            "",
            "MB",
            "1.5MB",
            "-1",
            "1 parsec",
            "99999999999999999999",
            "99999999999TiB",
        ] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_and_paths_come_back() {
        for (text, percent) in [("0", 0), ("0.2", 20), ("0.05", 5), ("1", 100), ("0.75", 75)] {
            let share = Share::parse(text).unwrap();
            assert_eq!((share.0, share.show().as_str()), (percent, text));
        }
        for text in ["", "2", "1.01", "0.123", "-1", "0.x", "20"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
        let paths = Paths::parse("/a, b/c").unwrap();
        assert_eq!(paths.0, [PathBuf::from("/a"), PathBuf::from("b/c")]);
        assert_eq!(paths.show(), "/a,b/c");
        assert_eq!(Paths::parse("").unwrap().show(), "");
        assert!(Paths::parse("/a,,b").is_err());
    }

    #[test]
    fn a_secret_is_not_shown() {
        for text in ["data:;base64,c2VjcmV0", "c2VjcmV0", "/a/path"] {
            let secret = Secret::parse(text).unwrap();
            assert_eq!((secret.reveal(), secret.show().as_str()), (text, "(hidden)"));
            assert_eq!(format!("{secret:?}"), "(hidden)");
        }
        let file = Secret::parse("file:///etc/key").unwrap();
        assert_eq!(file.show(), "file:///etc/key");
        assert_eq!(Secret::parse("").unwrap().show(), "");
        assert!(Secret::parse("(hidden)").is_err());
        assert_eq!(Names::parse("a, b,,c").unwrap().show(), "a,b,c");
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("1s", 1000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(Duration::parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "1 week", "-1s", "99999999d"] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for bytes in [0, 1, 1000, 1024, 1025, 5_242_880, 10_000_000, u64::MAX] {
            let size = ByteSize(bytes);
            assert_eq!(ByteSize::parse(&size.show()), Ok(size), "{}", size.show());
        }
        for nanos in [0, 1, 1_500, 250_000_000, 90_000_000_000, 86_400_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(Duration::parse(&time.show()), Ok(time), "{}", time.show());
        }
        assert_eq!(Limit::<ByteSize>::parse("unlimited"), Ok(Limit::Unlimited));
        assert_eq!(Limit::<ByteSize>::parse("1MiB"), Ok(Limit::At(ByteSize::mib(1))));
    }
}
