//! Records on both sides of the floor.

use super::*;

#[test]
fn c27_a_live_record_below_the_floor_is_no_news_where_nothing_is_known_of_it() {
    let state = decide(None, &Seen { version: Some(Version(3)), ..seen_of("") }, Detect::Version).1.unwrap();
    let key = |key: &str| RecordKey::from_stored(key.into());
    let kept = [
        ("forgotten", Kept::Forgotten(None)),
        ("gone", Kept::Forgotten(Some(Deletion::Flagged))),
        ("known", Kept::State(state)),
    ];
    let stored: HashMap<_, _> =
        kept.into_iter().map(|(name, kept)| (key(name), StoredRecord { kept, sequence: 4 })).collect();
    // floor's record is a replay's, key, version -> type, re_seen, previous version, sequence
    let cases = [
        (false, "forgotten", Some(9), None),
        (false, "gone", Some(9), None),
        (false, "never met", Some(9), None),
        (false, "forgotten", Some(10), Some(("record.updated", false, None, 5))),
        (false, "gone", Some(10), Some(("record.restored", false, None, 5))),
        (false, "never met", Some(10), Some(("record.created", false, None, 1))),
        (false, "forgotten", None, Some(("record.updated", false, None, 5))),
        (false, "known", Some(9), Some(("record.updated", false, Some(3), 5))),
        (true, "forgotten", Some(9), Some(("record.updated", true, None, 5))),
        (true, "gone", Some(9), Some(("record.restored", true, None, 5))),
        (true, "never met", Some(9), Some(("record.created", false, None, 1))),
        (true, "forgotten", Some(10), Some(("record.updated", false, None, 5))),
        (true, "known", Some(9), Some(("record.updated", false, Some(3), 5))),
    ];
    for (is_replay, name, version, expected) in cases {
        let floor = Some(Floor { at: Version(10), is_replay });
        let rules = PageRules { floor, ..rules(Silence::Never) };
        let page =
            decide_page(&[&record(name, version, "{}")], &stored, &HashMap::new(), &rules, RUN, NOW).unwrap();
        let told = page.events.first().map(|event| {
            let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
            let text = |name: &str| body.get(name).cloned().unwrap_or_default();
            let kind = event.event_type;
            (kind, text("re_seen") == true, text("previous_version").as_i64(), event.sequence)
        });
        assert_eq!(told, expected, "{is_replay} {name} {version:?}");
        let barred = u64::from(expected.is_none());
        assert_eq!((page.counts.below_floor, page.writes.len() as u64), (barred, 1 - barred), "{name}");
    }
}
