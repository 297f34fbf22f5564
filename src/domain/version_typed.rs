//! Versions as people type them: a day, a date and time, or the number itself.

use jiff::tz::TimeZone;
use serde_json::Value;

use super::version::{Version, VersionFormat};

impl VersionFormat {
    /// A version that a person has typed. Where versions are points in time that is a day, meaning its first instant, or
    /// a date and time, both in `zone` unless they name one; else it is the number. `None` where it is something else.
    pub fn typed(&self, text: &str, zone: Option<&TimeZone>) -> Option<Version> {
        let text = Value::from(text.trim());
        let zone = zone.cloned().unwrap_or(TimeZone::UTC);
        let format = if self.is_time() { &Self::Iso8601 } else { self };
        format.read(&text, Some(&zone)).ok().flatten()
    }

    /// How such a version is typed.
    pub const fn typed_like(&self) -> &'static str {
        match self {
            Self::Integer => "a whole number",
            Self::Decimal => "a number of up to six decimals",
            _ => "2026-11-30 or 2026-11-30T10:00:00Z",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_instants_and_numbers_are_read_as_people_type_them() {
        let zagreb = TimeZone::get("Europe/Zagreb").unwrap();
        let (auto, epoch, integer) = (VersionFormat::Auto, VersionFormat::EpochS, VersionFormat::Integer);
        let cases = [
            (&auto, "2026-07-01", None, Some(r#""2026-07-01T00:00:00Z""#)),
            (&auto, "2026-07-01", Some(&zagreb), Some(r#""2026-06-30T22:00:00Z""#)),
            (&epoch, " 2026-07-01T03:00:00+02:00 ", None, Some(r#""2026-07-01T01:00:00Z""#)),
            (&epoch, "2026-07-01T02:00", Some(&zagreb), Some(r#""2026-07-01T00:00:00Z""#)),
            (&epoch, "2026-07-01 02:00", None, Some(r#""2026-07-01T02:00:00Z""#)),
            (&auto, "1704067200", None, None),
            (&auto, "yesterday", None, None),
            (&auto, "", None, None),
            (&integer, "42", None, Some("42")),
            (&integer, "2026-07-01", None, None),
            (&VersionFormat::Decimal, "1.5", None, Some(r#""1.500000""#)),
        ];
        for (format, text, zone, expected) in cases {
            let version = format.typed(text, zone).map(|version| format.show(version).to_string());
            assert_eq!(version.as_deref(), expected, "{text:?}");
        }
    }
}
