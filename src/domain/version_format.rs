//! Formats of versions by their names in YAML, or as a pattern.

use std::str::FromStr;

use super::{version::VersionFormat, version_pattern::PatternError};

/// Why a text is no format of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It is neither a name nor a pattern.
    #[error("`{0}` is not a format of versions")]
    Unknown(String),
    /// It is a pattern that does not spell versions.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl FromStr for VersionFormat {
    type Err = FormatError;

    /// Reads a name of [`VersionFormat::NAMES`], or a pattern: any text with a `%` in it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('%') {
            return Ok(Self::Pattern(text.parse()?));
        }
        let named = [
            VersionFormat::Auto,
            VersionFormat::Iso8601,
            VersionFormat::Date,
            VersionFormat::Rfc2822,
            VersionFormat::EpochS,
            VersionFormat::EpochMs,
            VersionFormat::EpochUs,
            VersionFormat::Integer,
            VersionFormat::Decimal,
        ];
        let found = named.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| FormatError::Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_its_name_back() {
        for name in VersionFormat::NAMES {
            assert_eq!(name.parse::<VersionFormat>().unwrap().name(), name);
        }
        assert_eq!("%Y/%m/%d".parse::<VersionFormat>().unwrap().name(), "%Y/%m/%d");
        assert_eq!("isodate".parse::<VersionFormat>(), Err(FormatError::Unknown("isodate".to_owned())));
        assert!(matches!("%H:%M".parse::<VersionFormat>(), Err(FormatError::Pattern(_))));
    }
}
