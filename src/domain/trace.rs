//! Where an attempt stands in a trace, by W3C Trace Context: the attempts of one event are spans of one
//! trace, so that whoever traces n8n sees them side by side.

use super::content::Hash;

/// The value of `traceparent` for one attempt. The trace follows from the event's id; the span is the
/// attempt's own and never zero, which the specification forbids.
pub fn traceparent(event_id: &str, span: u64) -> String {
    let trace = Hash::of(event_id.as_bytes()).hex();
    format!("00-{trace}-{:016x}-01", span.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_one_event_are_spans_of_one_trace() {
        let parts = |id: &str, span| {
            let text = traceparent(id, span);
            text.split('-').map(str::to_owned).collect::<Vec<_>>()
        };
        let (first, again, other) = (parts("evt_1", 7), parts("evt_1", u64::MAX), parts("evt_2", 7));
        assert_eq!(first.iter().map(String::len).collect::<Vec<_>>(), [2, 32, 16, 2]);
        assert_eq!((first[0].as_str(), first[3].as_str()), ("00", "01"));
        assert_eq!(first[2], "0000000000000007");
        assert_eq!((&first[1], again[2].as_str()), (&again[1], "ffffffffffffffff"));
        assert_ne!(first[1], other[1]);
        assert_eq!(parts("evt_1", 0)[2], "0000000000000001");
    }
}
