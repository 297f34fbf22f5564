//! Rates: so many requests in any period.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use super::units::{format_duration, parse_duration};

/// Never more than `requests` in any period of `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many.
    pub requests: NonZeroU32,
    /// In how long.
    pub per: Duration,
}

impl Rate {
    /// The time between two requests, rounded up, so that rounding never lets one more in.
    pub fn period(&self) -> Duration {
        let nanos = self.per.as_nanos().div_ceil(u128::from(self.requests.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A text that is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate is written like 10/s, 100/m or 1/30s")]
pub struct NoRate;

impl FromStr for Rate {
    type Err = NoRate;

    /// Reads `10/s`, `100/m` or `5/30s`: how many, and in how long, which is one of a unit where no number says more.
    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (requests, per) = text.trim().split_once('/').ok_or(NoRate)?;
        let per = per.trim();
        let one = if per.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
        let per = parse_duration(&format!("{one}{per}")).filter(|per| !per.is_zero()).ok_or(NoRate)?;
        Ok(Self { requests: requests.trim().parse().map_err(|_| NoRate)?, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = format_duration(self.per);
        let unit = per.strip_prefix('1').filter(|unit| unit.bytes().all(|byte| byte.is_ascii_alphabetic()));
        write!(f, "{}/{}", self.requests, unit.unwrap_or(&per))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_rounded_up() {
        let period = |requests, nanos| {
            Rate { requests: NonZeroU32::new(requests).unwrap(), per: Duration::from_nanos(nanos) }.period()
        };
        assert_eq!(period(3, 9), Duration::from_nanos(3));
        assert_eq!(period(3, 10), Duration::from_nanos(4));
        assert_eq!(period(9, 0), Duration::ZERO);
    }

    #[test]
    fn rates_are_read_and_written() {
        let cases = [
            ("10/s", Some("10/s")),
            ("100 / m", Some("100/m")),
            ("1/30s", Some("1/30s")),
            ("5/1m", Some("5/m")),
            ("7/60m", Some("7/h")),
            ("3/1h30m", Some("3/1h30m")),
            ("0/s", None),
            ("10", None),
            ("10/", None),
            ("10/0s", None),
            ("-1/s", None),
            ("x/s", None),
            ("1/fortnight", None),
        ];
        for (text, expected) in cases {
            let rate = text.parse::<Rate>().ok().map(|rate| rate.to_string());
            assert_eq!(rate.as_deref(), expected, "{text}");
        }
    }
}
