//! Durations (`15m`, `1h30m`) and sizes (`1MB`) as people write them in YAML.

use std::time::Duration;

const TIME_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
];

/// Reads a duration: whole numbers with a unit `ms`, `s`, `m`, `h`, `d` or `w`, several in a row
/// (`1h30m`). `None` where the text is something else or too long to count in milliseconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (count, tail) = leading_number(rest)?;
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, millis) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(count.checked_mul(*millis)?)?;
        rest = tail.trim_start();
    }
    Some(Duration::from_millis(total))
}

/// Writes a duration the way [`parse_duration`] reads it, in the largest units that fit exactly;
/// what is below a millisecond is left out.
pub fn format_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in TIME_UNITS.iter().rev().filter(|(unit, _)| *unit != "w") {
        let count = millis / size;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            millis %= size;
        }
    }
    text
}

/// Reads a size in bytes: a whole number with a unit `B`, `kB`, `MB`, `GB`, `KiB` or `MiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let (count, unit) = leading_number(text.trim())?;
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    count.checked_mul(*bytes)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        let cases = [
            ("15m", Some(900_000)),
            ("1h30m", Some(5_400_000)),
            (" 2d ", Some(172_800_000)),
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("1w", Some(604_800_000)),
            ("", None),
            ("15", None),
            ("m", None),
            ("1.5h", None),
            ("-1s", None),
            ("5 minutes", None),
            ("99999999999999999999s", None),
            ("18446744073709551615w", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
        for text in ["1h30m", "15m", "7d", "1d2h3m4s5ms", "0s"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_are_read() {
        let cases =
            [("1MB", Some(1_000_000)), ("16 MiB", Some(16 << 20)), ("1", None), ("1 mb", None), ("x", None)];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }
}
