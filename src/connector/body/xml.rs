//! XML as JSON: `<a b="1">x<c/><c/></a>` is `{"a":{"@b":"1","c":["",""],"#text":"x"}}`, and an element with
//! nothing but text is that text. Names keep their prefix.
//!
//! Nothing is fetched and nothing declared is expanded: a reference that XML itself does not define stays as
//! it is written. Elements are written out as they close, so that memory is bounded by what is written.

use std::collections::HashMap;

use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};
use serde_json::value::RawValue;

use super::document::{Broken, Document, DocumentError, LARGEST, push_text};

/// How deep elements may stand in each other; JSON readers take 128 levels.
const DEEPEST: usize = 60;

/// How many names the children and attributes of one element may have.
const MOST_NAMES: usize = 1_000;

/// An element that is not closed yet.
#[derive(Default)]
struct Open {
    name: String,
    text: String,
    /// Some of the text is to be kept as it is.
    verbatim: bool,
    members: Vec<Member>,
    positions: HashMap<String, usize>,
}

/// The children of one name, or an attribute.
struct Member {
    name: String,
    /// Their JSON texts, separated by commas.
    json: String,
    is_list: bool,
}

fn fault(reason: impl Into<String>) -> DocumentError {
    DocumentError::Xml(reason.into())
}

/// Reads a body.
pub(super) fn read(text: &str) -> Result<Document, DocumentError> {
    let mut reader = Reader::from_str(text);
    let mut stack = vec![Open::default()];
    loop {
        let place = reader.buffer_position();
        let event = reader.read_event().map_err(|error| fault(format!("at byte {place}: {error}")))?;
        match event {
            Event::Start(start) => open(&mut stack, &start)?,
            Event::Empty(start) => {
                open(&mut stack, &start)?;
                close(&mut stack)?;
            }
            Event::End(_) => close(&mut stack)?,
            Event::Text(piece) => add_text(&mut stack, &piece.xml10_content()),
            Event::CData(piece) => {
                add_text(&mut stack, &piece.xml10_content());
                if let Some(here) = stack.last_mut() {
                    here.verbatim = true;
                }
            }
            Event::GeneralRef(reference) => {
                let name = reference.into_inner();
                match resolved(&name) {
                    Some(character) => add_text(&mut stack, character.encode_utf8(&mut [0; 4])),
                    None => add_text(&mut stack, &format!("&{name};")),
                }
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            Event::Eof => break,
        }
    }
    let root = match (stack.pop(), stack.is_empty()) {
        (Some(root), true) => root,
        (inner, _) => {
            let name = inner.unwrap_or_default().name;
            return Err(fault(format!("it breaks off inside `{name}`")));
        }
    };
    if !root.text.trim().is_empty() {
        return Err(fault("there is text outside of its elements"));
    }
    match root.members.as_slice() {
        [one] if !one.is_list => Ok(Document {
            json: RawValue::from_string(json_of(root)?)?,
            broken: Broken::default(),
            columns: None,
        }),
        [] => Err(fault("it has no element")),
        _ => Err(fault("it has more than one root element")),
    }
}

fn open(stack: &mut Vec<Open>, start: &BytesStart<'_>) -> Result<(), DocumentError> {
    if stack.len() > DEEPEST {
        return Err(fault(format!("its elements stand more than {DEEPEST} deep")));
    }
    let mut here = Open { name: start.name().as_ref().to_owned(), ..Open::default() };
    // Without the check for repeated names, which compares each with each.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| fault(format!("in `{}`: {error}", here.name)))?;
        let mut json = String::new();
        push_text(&mut json, &unescaped(&attribute.value));
        here.add(format!("@{}", attribute.key.as_ref()), &json)?;
    }
    stack.push(here);
    Ok(())
}

fn close(stack: &mut Vec<Open>) -> Result<(), DocumentError> {
    let Some(closed) = stack.pop() else { return Err(fault("an element is closed that was never opened")) };
    let Some(parent) = stack.last_mut() else {
        return Err(fault("an element is closed that was never opened"));
    };
    let name = closed.name.clone();
    parent.add(name, &json_of(closed)?)
}

fn add_text(stack: &mut [Open], text: &str) {
    if let Some(here) = stack.last_mut() {
        here.text.push_str(text);
    }
}

impl Open {
    fn add(&mut self, name: String, json: &str) -> Result<(), DocumentError> {
        if let Some(known) = self.positions.get(&name).and_then(|position| self.members.get_mut(*position)) {
            known.json.push(',');
            known.json.push_str(json);
            known.is_list = true;
            return if known.json.len() > LARGEST { Err(DocumentError::TooLarge) } else { Ok(()) };
        }
        if self.members.len() >= MOST_NAMES {
            return Err(fault(format!("`{}` holds more than {MOST_NAMES} different names", self.name)));
        }
        self.positions.insert(name.clone(), self.members.len());
        self.members.push(Member { name, json: json.to_owned(), is_list: false });
        Ok(())
    }
}

fn json_of(element: Open) -> Result<String, DocumentError> {
    let text = if element.verbatim { element.text.as_str() } else { element.text.trim() };
    let mut json = String::new();
    if element.members.is_empty() {
        push_text(&mut json, text);
        return Ok(json);
    }
    let mut mark = '{';
    for member in element.members {
        json.push(mark);
        push_text(&mut json, &member.name);
        json.push(':');
        if member.is_list {
            json.push('[');
        }
        json.push_str(&member.json);
        if member.is_list {
            json.push(']');
        }
        mark = ',';
        if json.len() > LARGEST {
            return Err(DocumentError::TooLarge);
        }
    }
    // Blanks between elements are layout.
    if !text.trim().is_empty() {
        json.push_str(",\"#text\":");
        push_text(&mut json, text);
    }
    json.push('}');
    Ok(json)
}

/// The character that a reference stands for, where XML itself says so.
fn resolved(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code).filter(|character| *character != '\0')
        }
    }
}

/// An attribute's value with its references resolved.
fn unescaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        // No reference is longer; without the bound a row of `&` would be searched to its end each time.
        let near = after.char_indices().take(12).find(|(_, character)| *character == ';');
        let found = near.and_then(|(end, _)| Some((resolved(after.get(..end)?)?, after.get(end + 1..)?)));
        let (character, tail) = found.unwrap_or(('&', after));
        out.push(character);
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_become_json() {
        let cases = [
            ("<a/>", r#"{"a":""}"#),
            ("<?xml version=\"1.0\"?>\n<!-- c --><a>\n x </a>\n", r#"{"a":"x"}"#),
            (r#"<a b="1">x<c/><c>2</c></a>"#, r##"{"a":{"@b":"1","c":["","2"],"#text":"x"}}"##),
            (r#"<a b="&lt;&#65;&#x42;&amp;amp;&nbsp;&"/>"#, r#"{"a":{"@b":"<AB&amp;&nbsp;&"}}"#),
            ("<a>&lt;&#65;&#x17e;&nbsp;&#0;</a>", "{\"a\":\"<A\u{17e}&nbsp;&#0;\"}"),
            ("<a><![CDATA[ <b>&amp; ]]></a>", r#"{"a":" <b>&amp; "}"#),
            ("<r:a xmlns:r=\"u\"><r:b>1</r:b></r:a>", r#"{"r:a":{"@xmlns:r":"u","r:b":"1"}}"#),
            ("<a><b>1</b><c/><b>2</b>\n</a>", r#"{"a":{"b":["1","2"],"c":""}}"#),
            ("<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>", r#"{"a":"&x;"}"#),
            ("<!DOCTYPE a [<!ENTITY y \"yy\"><!ENTITY x \"&y;&y;\">]><a>&x;</a>", r#"{"a":"&x;"}"#),
        ];
        for (xml, expected) in cases {
            assert_eq!(read(xml).map(|document| document.json.get().to_owned()).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_xml_or_too_deep_or_too_wide_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let names: Vec<String> = (0..2_000).map(|index| format!("n{index}")).collect();
        let wide = format!("<{}/>", names.join("/><"));
        let attributes = format!(" {}=''", names.join("='' "));
        for (xml, expected) in [
            ("", "no element"),
            ("{\"a\":1}", "outside"),
            ("<a><b></a>", "expected"),
            ("<a><b>", "breaks off inside `b`"),
            ("<a/><a/>", "more than one root"),
            ("<a/><b/>", "more than one root"),
            ("<a b=1/>", "in `a`"),
            ("</a>", "byte 0"),
            ("<a", "byte 0"),
            (deep.as_str(), "deep"),
            (&format!("<a>{wide}</a>"), "different names"),
            (&format!("<a{attributes}/>"), "different names"),
        ] {
            let error = read(xml).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn large_bodies_of_little_content_are_read_in_time() {
        let many = format!("<a>{}</a>", "<b c=\"\"/>".repeat(200_000));
        assert!(read(&many).is_ok());
        let references = format!("<a b=\"{}\">{}</a>", "&".repeat(500_000), "&lt;".repeat(200_000));
        assert!(read(&references).is_ok());
    }
}
