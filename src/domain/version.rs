//! The version: a record's cursor value (`updated_at`) as a number that orders, whatever its spelling.
//!
//! Versions are compared as numbers, never as text (field case C20), and fractions are cut, never rounded
//! up (C19).

use jiff::{
    civil,
    fmt::{rfc2822, strtime},
    tz::TimeZone,
};
use serde_json::Value;

use super::{
    fixed_point::{decimals, millionths, scaled},
    instant::Instant,
    version_pattern::{Pattern, Told},
    wall,
};

/// A cursor value: microseconds since 1970, the integer itself where the format is `integer`, and millionths
/// where it is `decimal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

/// How a source spells its cursor values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VersionFormat {
    /// RFC 3339, RFC 2822 or an epoch told by its size.
    #[default]
    Auto,
    /// An ISO 8601 date and time; without an offset it is read in the stream's `timezone`.
    Iso8601,
    /// A calendar day (`2026-11-30`), read as its first instant in the stream's `timezone`.
    Date,
    /// `Mon, 30 Nov 2026 10:00:00 GMT`.
    Rfc2822,
    /// Seconds since 1970, with or without a fraction.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
    /// Microseconds since 1970.
    EpochUs,
    /// Any growing whole number: a revision or an id.
    Integer,
    /// Any growing number of up to six decimals, such as Slack's `ts`: told apart to the last digit, and no
    /// point in time.
    Decimal,
    /// A pattern of strftime.
    Pattern(Pattern),
}

/// Why a cursor value could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The value has no zone and the stream names none.
    #[error("`{0}` has no time zone: set `incremental.timezone`")]
    NoZone(String),
    /// The value does not have the declared format.
    #[error("`{value}` is not a version in the format {format}")]
    Unreadable {
        /// The value, shortened.
        value: String,
        /// The declared format.
        format: String,
    },
}

impl VersionFormat {
    /// The names of the formats that have one.
    pub const NAMES: [&str; 9] =
        ["auto", "iso8601", "date", "rfc2822", "epoch_s", "epoch_ms", "epoch_us", "integer", "decimal"];

    /// The name, or the pattern, as YAML has it.
    pub fn name(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Iso8601 => "iso8601",
            Self::Date => "date",
            Self::Rfc2822 => "rfc2822",
            Self::EpochS => "epoch_s",
            Self::EpochMs => "epoch_ms",
            Self::EpochUs => "epoch_us",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }

    /// Whether versions of this format are points in time.
    pub const fn is_time(&self) -> bool {
        !matches!(self, Self::Integer | Self::Decimal)
    }

    /// Whether versions of this format can be asked for in `other`: both must count the same thing.
    pub fn can_be_asked_for_as(&self, other: &Self) -> bool {
        self.is_time() == other.is_time() && (self.is_time() || self == other)
    }

    /// The coarsest step that this format can spell, in version units: what a bound is floored to.
    pub const fn precision(&self) -> i64 {
        match self {
            Self::Integer | Self::Decimal | Self::EpochUs => 1,
            Self::Pattern(pattern) => pattern.precision(),
            Self::EpochMs => 1_000,
            Self::Date => 86_400_000_000,
            Self::Auto | Self::Iso8601 | Self::Rfc2822 | Self::EpochS => 1_000_000,
        }
    }

    /// Reads a cursor value. Null, the empty text and dates of zeros are `None`: no version.
    pub fn read(&self, value: &Value, zone: Option<&TimeZone>) -> Result<Option<Version>, VersionError> {
        let text = match value {
            Value::Null => return Ok(None),
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            other => return Err(self.unreadable(&other.to_string())),
        };
        if text.is_empty() || text.starts_with("0000-00-00") {
            return Ok(None);
        }
        let version = match self {
            Self::Auto if looks_numeric(&text) => epoch_by_size(&text),
            Self::Auto => {
                return read_time(&text, zone)
                    .or_else(|error| rfc2822_instant(&text).map(Some).ok_or(error))
                    .map(|version| version.map(instant_version));
            }
            Self::Iso8601 => return read_time(&text, zone).map(|version| version.map(instant_version)),
            Self::Date => {
                return match text.parse::<civil::Date>() {
                    Ok(date) => in_zone(date.to_datetime(civil::Time::midnight()), &text, zone),
                    Err(_) => Err(self.unreadable(&text)),
                }
                .map(|instant| Some(instant_version(instant)));
            }
            Self::Rfc2822 => rfc2822_instant(&text).map(super::instant::Instant::micros),
            Self::EpochS => scaled(&text, 6),
            Self::EpochMs => scaled(&text, 3),
            Self::EpochUs | Self::Integer => scaled(&text, 0),
            // A digit that is cut off could be the one by which two versions differ.
            Self::Decimal => scaled(&text, 6).filter(|_| decimals(&text) <= 6),
            Self::Pattern(pattern) => {
                return match pattern.read(&text) {
                    Some(Told::Instant(instant)) => Ok(Some(instant_version(instant))),
                    Some(Told::Local(local)) => {
                        in_zone(local, &text, zone).map(|instant| Some(instant_version(instant)))
                    }
                    None => Err(self.unreadable(&text)),
                };
            }
        };
        version.map(|version| Some(Version(version))).ok_or_else(|| self.unreadable(&text))
    }

    /// Spells a version as a request parameter, cut to the format's precision, in `zone` where it matters.
    pub fn write(&self, version: Version, zone: Option<&TimeZone>) -> Value {
        let timestamp = Instant::from_micros(version.0).timestamp();
        let zoned = || timestamp.to_zoned_datetime(zone.cloned().unwrap_or(TimeZone::UTC));
        match self {
            Self::Integer | Self::EpochUs => Value::from(version.0),
            Self::Decimal => Value::from(millionths(version.0)),
            Self::Pattern(pattern) => {
                let zone = zone.cloned().unwrap_or(TimeZone::UTC);
                Value::from(pattern.write(Instant::from_micros(version.0), zone))
            }
            Self::EpochMs => Value::from(version.0.div_euclid(1_000)),
            Self::EpochS => Value::from(version.0.div_euclid(1_000_000)),
            Self::Date => Value::from(zoned().date().to_string()),
            Self::Rfc2822 => {
                Value::from(strtime::format("%a, %d %b %Y %H:%M:%S GMT", timestamp).unwrap_or_default())
            }
            Self::Auto | Self::Iso8601 if zone.is_some() => {
                Value::from(zoned().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
            }
            Self::Auto | Self::Iso8601 => Value::from(timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        }
    }

    /// Spells the lower bound of a window, so that no later version is left out.
    pub fn write_lower(&self, bound: Version, zone: Option<&TimeZone>) -> Value {
        self.write(self.drawn(bound, zone, wall::lower), zone)
    }

    /// Spells the upper bound of a window, so that no earlier version is left out.
    pub fn write_upper(&self, bound: Version, zone: Option<&TimeZone>) -> Value {
        self.write(self.drawn(bound, zone, wall::upper), zone)
    }

    fn drawn(
        &self,
        bound: Version,
        zone: Option<&TimeZone>,
        wider: impl Fn(Instant, &TimeZone) -> Instant,
    ) -> Version {
        let is_local = match self {
            Self::Pattern(pattern) => pattern.is_local(),
            format => *format == Self::Date,
        };
        match zone.filter(|_| is_local) {
            Some(zone) => instant_version(wider(Instant::from_micros(bound.0), zone)),
            None => bound,
        }
    }

    /// A version as people and events see it: an RFC 3339 instant, the integer, or the decimal as a text, so
    /// that nobody rounds it.
    pub fn show(&self, version: Version) -> Value {
        match self {
            Self::Integer => Value::from(version.0),
            Self::Decimal => Value::from(millionths(version.0)),
            _ => Value::from(Instant::from_micros(version.0).to_string()),
        }
    }

    fn unreadable(&self, value: &str) -> VersionError {
        VersionError::Unreadable { value: value.chars().take(80).collect(), format: self.name().to_owned() }
    }
}

fn instant_version(instant: Instant) -> Version {
    Version(instant.micros())
}

fn looks_numeric(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    unsigned.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Epoch units told by size: below 1e11 seconds, 1e14 milliseconds, 1e17 microseconds, else nanoseconds.
fn epoch_by_size(text: &str) -> Option<i64> {
    let whole: u128 = text.trim_start_matches('-').split('.').next()?.parse().ok()?;
    match whole {
        0..100_000_000_000 => scaled(text, 6),
        100_000_000_000..100_000_000_000_000 => scaled(text, 3),
        100_000_000_000_000..100_000_000_000_000_000 => scaled(text, 0),
        _ => scaled(text, 0).map(|nanos| nanos.div_euclid(1_000)),
    }
}

fn rfc2822_instant(text: &str) -> Option<Instant> {
    rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().into())
}

fn read_time(text: &str, zone: Option<&TimeZone>) -> Result<Option<Instant>, VersionError> {
    let spelled = text.replacen(' ', "T", usize::from(!text.contains('T')));
    if let Ok(timestamp) = spelled.parse::<jiff::Timestamp>() {
        return Ok(Some(timestamp.into()));
    }
    match spelled.parse::<civil::DateTime>() {
        Ok(local) => in_zone(local, text, zone).map(Some),
        Err(_) => Err(VersionFormat::Iso8601.unreadable(text)),
    }
}

fn in_zone(local: civil::DateTime, text: &str, zone: Option<&TimeZone>) -> Result<Instant, VersionError> {
    let zone = zone.ok_or_else(|| VersionError::NoZone(text.to_owned()))?;
    match local.to_zoned_datetime(zone.clone()) {
        Ok(zoned) => Ok(zoned.timestamp().into()),
        Err(_) => Err(VersionFormat::Iso8601.unreadable(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &VersionFormat, value: &Value) -> Result<Option<String>, VersionError> {
        let version = format.read(value, None)?;
        Ok(version.map(|version| format.show(version).to_string().trim_matches('"').to_owned()))
    }

    fn pattern(text: &str) -> VersionFormat {
        text.parse().unwrap()
    }

    #[test]
    fn a_decimal_keeps_every_digit_and_refuses_what_it_cannot_keep() {
        let read = |text: &str| VersionFormat::Decimal.read(&Value::from(text), None);
        let version = read("1512085950.000216").unwrap().unwrap();
        assert_eq!(VersionFormat::Decimal.show(version), "1512085950.000216");
        assert_eq!(VersionFormat::Decimal.write(version, None), "1512085950.000216");
        assert!(read("1512085950.0002160").is_ok() && read("1512085950.0002161").is_err());
    }

    #[test]
    fn patterns_are_read_and_written_in_the_declared_zone() {
        let zagreb = TimeZone::get("Europe/Zagreb").unwrap();
        let local = pattern("%d.%m.%Y %H:%M");
        let text = Value::from("01.07.2024 02:30");
        assert_eq!(local.read(&text, None), Err(VersionError::NoZone("01.07.2024 02:30".to_owned())));
        let version = local.read(&text, Some(&zagreb)).unwrap().unwrap();
        assert_eq!(local.show(version), "2024-07-01T00:30:00Z");
        assert_eq!(local.write(version, Some(&zagreb)), text);
        assert_eq!(local.write(version, None), "01.07.2024 00:30");
        assert!(local.read(&Value::from("2024-07-01"), Some(&zagreb)).is_err());
        let zoned = pattern("%Y%m%dT%H%M%S%z");
        let version = zoned.read(&Value::from("20240701T023000+0200"), None).unwrap().unwrap();
        assert_eq!(zoned.show(version), "2024-07-01T00:30:00Z");
        let day = pattern("%Y%m%d").read(&Value::from(20_240_701), Some(&zagreb)).unwrap().unwrap();
        assert_eq!(zoned.show(day), "2024-06-30T22:00:00Z");
    }

    #[test]
    fn c19_many_spellings_are_one_instant() {
        let cases = [
            ("2024-11-01T10:59:29+00:00", "2024-11-01T10:59:29Z"),
            ("2024-11-01T10:59:29.000000+00:00", "2024-11-01T10:59:29Z"),
            ("2024-01-01T00:00:00+0000", "2024-01-01T00:00:00Z"),
            ("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.5Z"),
            ("2024-01-01T00:00Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01 00:00:00Z", "2024-01-01T00:00:00Z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("Mon, 01 Jan 2024 00:00:00 GMT", "2024-01-01T00:00:00Z"),
            ("1704067200", "2024-01-01T00:00:00Z"),
            ("1704067200000", "2024-01-01T00:00:00Z"),
            ("1704067200000000", "2024-01-01T00:00:00Z"),
            ("1704067200000000000", "2024-01-01T00:00:00Z"),
            ("1704067200.25", "2024-01-01T00:00:00.25Z"),
            ("2024-01-01T00:00:33.6149999Z", "2024-01-01T00:00:33.614999Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                read(&VersionFormat::Auto, &Value::from(text)),
                Ok(Some(expected.to_owned())),
                "{text}"
            );
        }
        let number: Value = serde_json::from_str("1704067200.25").unwrap();
        assert_eq!(read(&VersionFormat::EpochS, &number), Ok(Some("2024-01-01T00:00:00.25Z".to_owned())));
    }

    #[test]
    fn c22_nothing_is_no_version_and_garbage_is_an_error() {
        for value in [Value::Null, Value::from(""), Value::from("0000-00-00 00:00:00")] {
            assert_eq!(read(&VersionFormat::Auto, &value), Ok(None));
        }
        assert!(read(&VersionFormat::Auto, &Value::from("not a date")).is_err());
        assert!(read(&VersionFormat::EpochS, &Value::from("12x")).is_err());
        assert!(read(&VersionFormat::Integer, &Value::from("99999999999999999999")).is_err());
        let zoneless = read(&VersionFormat::Auto, &Value::from("2024-01-01 00:00:00"));
        assert_eq!(zoneless, Err(VersionError::NoZone("2024-01-01 00:00:00".to_owned())));
    }

    #[test]
    fn zone_less_values_are_read_in_the_declared_zone() {
        let zagreb = TimeZone::get("Europe/Zagreb").unwrap();
        let version = VersionFormat::Auto.read(&Value::from("2024-07-01 02:00:00"), Some(&zagreb)).unwrap();
        assert_eq!(VersionFormat::Auto.show(version.unwrap()), "2024-07-01T00:00:00Z");
        let day = VersionFormat::Date.read(&Value::from("2024-07-01"), Some(&zagreb)).unwrap().unwrap();
        assert_eq!(VersionFormat::Iso8601.show(day), "2024-06-30T22:00:00Z");
        assert_eq!(VersionFormat::Date.write(day, Some(&zagreb)), "2024-07-01");
    }

    #[test]
    fn c20_versions_order_as_values_and_not_as_text() {
        let pairs = [
            (VersionFormat::Integer, "9", "10"),
            (VersionFormat::Decimal, "1512085950.000216", "1512085950.000217"),
            (VersionFormat::Decimal, "9.5", "10.25"),
            (VersionFormat::Decimal, "-2", "-1.999999"),
            (pattern("%d.%m.%Y %H:%M%z"), "31.01.2026 10:00+0000", "01.02.2026 10:30+0100"),
            (VersionFormat::Auto, "2026-07-29T10:06:55.172Z", "2026-07-29 10:11:21Z"),
            (VersionFormat::Auto, "2026-07-29T10:06:35Z", "2026-07-29T10:06:35.063Z"),
            (VersionFormat::Auto, "2025-04-17T01:00:00+02:00", "2025-04-17T00:30:00+00:00"),
        ];
        for (format, older, newer) in pairs {
            let read = |text: &str| format.read(&Value::from(text), None).unwrap().unwrap();
            assert!(read(older) < read(newer), "{older} < {newer}");
        }
    }

    #[test]
    fn versions_are_written_at_the_precision_of_the_request() {
        let version = Version(1_704_067_200_999_999);
        let cases = [
            (VersionFormat::Iso8601, Value::from("2024-01-01T00:00:00Z")),
            (VersionFormat::EpochS, Value::from(1_704_067_200)),
            (VersionFormat::EpochMs, Value::from(1_704_067_200_999_i64)),
            (VersionFormat::Rfc2822, Value::from("Mon, 01 Jan 2024 00:00:00 GMT")),
            (VersionFormat::Date, Value::from("2024-01-01")),
        ];
        for (format, expected) in cases {
            assert_eq!(format.write(version, None), expected);
        }
    }
}
