//! Bounds spelled as local times without an offset. Where clocks are put back, an hour comes twice, and a local
//! time of the first pass stands above instants of the second: a bound there has to be drawn wider, so that no
//! instant on its inner side is left out by a source that compares what it reads.

use jiff::{
    Timestamp,
    tz::{AmbiguousOffset, TimeZone},
};

use super::instant::{Instant, micros_of};

/// An hour that comes twice, as instants: the first pass, and from `turn` on the second.
struct Fold {
    start: Instant,
    turn: Instant,
    end: Instant,
}

/// The latest instant at or before `bound` whose local time is not above that of any instant from `bound` on.
pub fn lower(bound: Instant, zone: &TimeZone) -> Instant {
    match fold(bound, zone) {
        Some(fold) if bound < fold.turn => fold.start,
        _ => bound,
    }
}

/// The earliest instant at or after `bound` whose local time is above that of every instant before `bound`.
pub fn upper(bound: Instant, zone: &TimeZone) -> Instant {
    match fold(bound, zone) {
        Some(fold) if bound >= fold.turn => fold.end,
        _ => bound,
    }
}

/// The hour that comes twice and that an instant lies in.
fn fold(at: Instant, zone: &TimeZone) -> Option<Fold> {
    let at = at.timestamp();
    let AmbiguousOffset::Fold { before, after } = zone.to_ambiguous_timestamp(zone.to_datetime(at)).offset()
    else {
        return None;
    };
    let is_first = zone.to_offset(at) == before;
    let turn: Timestamp = if is_first {
        zone.following(at).next()?.timestamp()
    } else {
        // The transition itself belongs to the second pass.
        zone.preceding(at.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?).next()?.timestamp()
    };
    let length = u64::try_from(before.seconds() - after.seconds()).ok()?;
    let length = std::time::Duration::from_secs(length);
    debug_assert!(micros_of(length) > 0, "clocks were put back");
    let turn = Instant::from(turn);
    Some(Fold { start: turn.minus(length), turn, end: turn.plus(length) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(text: &str) -> Instant {
        text.parse().unwrap()
    }

    #[test]
    fn bounds_in_the_hour_that_comes_twice_are_drawn_wider() {
        let zagreb = TimeZone::get("Europe/Zagreb").unwrap();
        // 2026-10-25: 02:00 to 03:00 comes twice, from 00:00Z to 01:00Z and from 01:00Z to 02:00Z.
        let cases = [
            ("2026-10-24T23:59:59Z", "2026-10-24T23:59:59Z", "2026-10-24T23:59:59Z"),
            ("2026-10-25T00:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T00:00:00Z"),
            ("2026-10-25T00:50:00Z", "2026-10-25T00:00:00Z", "2026-10-25T00:50:00Z"),
            ("2026-10-25T01:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
            ("2026-10-25T01:10:00Z", "2026-10-25T01:10:00Z", "2026-10-25T02:00:00Z"),
            ("2026-10-25T02:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:00:00Z"),
            ("2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"),
        ];
        for (bound, low, high) in cases {
            assert_eq!(lower(at(bound), &zagreb), at(low), "lower {bound}");
            assert_eq!(upper(at(bound), &zagreb), at(high), "upper {bound}");
        }
        assert_eq!(lower(at("2026-10-25T00:50:00Z"), &TimeZone::UTC), at("2026-10-25T00:50:00Z"));
    }

    #[test]
    fn no_instant_on_the_inner_side_is_left_out_in_any_zone() {
        for (zone, from) in [
            ("Europe/Zagreb", "2026-10-24T22:00:00Z"),
            ("America/New_York", "2026-11-01T03:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T12:00:00Z"),
            ("America/Havana", "2026-11-01T02:00:00Z"),
            ("Europe/Zagreb", "2026-03-28T23:00:00Z"),
        ] {
            let (zone, from) = (TimeZone::get(zone).unwrap(), at(from));
            let local = |instant: Instant| zone.to_datetime(instant.timestamp());
            let instants: Vec<_> = (0..7 * 12).map(|n| from.plus(n * Duration::from_mins(5))).collect();
            for (n, bound) in instants.iter().enumerate() {
                let (low, high) = (local(lower(*bound, &zone)), local(upper(*bound, &zone)));
                assert!(instants[n..].iter().all(|instant| local(*instant) >= low), "{zone:?} from {bound}");
                assert!(instants[..n].iter().all(|instant| local(*instant) < high), "{zone:?} to {bound}");
            }
        }
    }
}
