//! The Link header (RFC 8288): the target of `rel="next"`, in every form that the RFC allows and some that
//! it does not. No text may panic; what cannot be read is passed over.

/// The target of the first link whose relation types hold `next`, over all values of the header.
pub fn next_of<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<String> {
    values.into_iter().find_map(next_in)
}

fn next_in(value: &str) -> Option<String> {
    let mut rest = value;
    loop {
        let (_, after) = rest.split_once('<')?;
        let (target, after) = after.split_once('>')?;
        let (is_next, after) = parameters(after);
        if is_next {
            return Some(target.trim().to_owned());
        }
        rest = after;
    }
}

/// Reads the parameters behind a target: whether the link is `next` of this very page, and what follows
/// the link.
fn parameters(text: &str) -> (bool, &str) {
    let mut rest = text.trim_start();
    let (mut rel, mut anchored) = (None, false);
    while let Some(after) = rest.strip_prefix(';') {
        let after = after.trim_start();
        let name_end = after.find(['=', ';', ',']).unwrap_or(after.len());
        let (name, after) = after.split_at(name_end);
        let name = name.trim();
        let value;
        (value, rest) = match after.strip_prefix('=') {
            Some(after) => value_of(after.trim_start()),
            None => (String::new(), after),
        };
        rest = rest.trim_start();
        // The first `rel` counts (RFC 8288 section 3.3).
        if name.eq_ignore_ascii_case("rel") && rel.is_none() {
            rel = Some(value);
        } else if name.eq_ignore_ascii_case("anchor") {
            anchored = true;
        }
    }
    let is_next = rel.is_some_and(|rel| {
        rel.split(|c: char| c.is_ascii_whitespace()).any(|relation| relation.eq_ignore_ascii_case("next"))
    });
    // A link with an anchor is about another page.
    (is_next && !anchored, rest)
}

/// A token or a quoted text, and what follows it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = text.split_at(text.find([';', ',']).unwrap_or(text.len()));
        return (token.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn next_is_found_in_every_legal_form() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&[r#"<https://a.test/x?page=2>; rel="next""#], Some("https://a.test/x?page=2")),
            (&[r#"<https://a.test/x?page=2>;rel=next"#], Some("https://a.test/x?page=2")),
            (&[r#"<?page=1>; rel="prev", <?page=3>; rel="next", <?page=9>; rel="last""#], Some("?page=3")),
            (&[r#"<?page=1>; rel="prev""#, r#"<?page=3>; rel="next""#], Some("?page=3")),
            (&[r#"<?a=1,2;3>; rel="next""#], Some("?a=1,2;3")),
            (&[r#"<?p=2>; title="a, <b>; rel=\"x\""; REL = "last NEXT""#], Some("?p=2")),
            (&[r#"<?p=2>; rel="nextish", <?p=3>; rel="x next y""#], Some("?p=3")),
            (&[r#"<?p=2> ;  rel="next" ; results="true""#], Some("?p=2")),
            (&[r#"<?p=2>; results="true"; rel="next""#], Some("?p=2")),
            (&[r#"<?p=2>; rel="prev"; rel="next""#], None),
            (&[r##"<?p=2>; rel="next"; anchor="#other""##], None),
            (&[r#"<?p=2>; crossorigin; rel="next""#], Some("?p=2")),
            (&[r#", ,<?p=2>; rel="next""#], Some("?p=2")),
            (&[r#"<?p=2>; rel="next"#], Some("?p=2")),
            (&["<>; rel=next"], Some("")),
            (&["<?p=2>"], None),
            (&["?p=2; rel=next"], None),
            (&["<?p=2; rel=next"], None),
            (&[""], None),
            (&[], None),
        ];
        for (values, expected) in cases {
            assert_eq!(next_of(values.iter().copied()).as_deref(), *expected, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_panics(value in any::<String>(), links in "[<>;,=\"\\\\ relnxtž]{0,40}") {
            next_of([value.as_str(), links.as_str()]);
        }
    }
}
