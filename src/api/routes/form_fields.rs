//! The fields of forms.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use ktsu_inspector::PagePlace;
use serde_json::{Map, Value};

use super::command::invalid;
use ktsu_server::ProblemDetails;
use ktsu_server::body;

/// The field that says which page the form is on.
const BACK: &str = "_back";
/// The field that says which page is shown after it, if another one.
const NEXT: &str = "_next";
/// In the address of the page that is shown next: the run that was made.
pub(super) const NEW_RUN: &str = "{run_id}";
/// The page of a form that does not say which it is.
const FIRST: &str = "inbox";
/// The field that says that only a part of the page is wanted.
const PART: &str = "_part";
/// The names of fields that hold JSON end with it.
const JSON: &str = ":json";
/// The most members around the one that a field names.
const MAX_DEPTH: usize = 8;

/// The pages around a form, below `/inspector/`; an extension of responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormPages {
    /// The one that it is on.
    pub(super) back: String,
    /// The one that is shown after it.
    pub(super) next: String,
    /// True if only the answer to it is shown.
    pub(super) is_part: bool,
}

impl Default for FormPages {
    fn default() -> Self {
        Self {
            back: FIRST.to_owned(),
            next: FIRST.to_owned(),
            is_part: false,
        }
    }
}

/// The fields of a form as they were typed; an extension of responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypedFields(pub(super) Vec<(String, String)>);

impl TypedFields {
    pub(super) fn of(form: &[u8]) -> Self {
        let fields = url::form_urlencoded::parse(form);
        let text = |text: &str| text.replace("\r\n", "\n");
        Self(
            fields
                .map(|(name, value)| (text(&name), text(&value)))
                .collect(),
        )
    }

    /// The value of a field; of the first one, if there are several.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The pages around a form, whatever else is in it.
pub(super) fn pages(typed: &TypedFields) -> FormPages {
    let page = |name: &str| {
        let page = typed.get(name).filter(|page| !page.is_empty())?;
        is_inside(&page.replace(NEW_RUN, "R")).then(|| page.to_owned())
    };
    let back = page(BACK).unwrap_or_else(|| FIRST.to_owned());
    FormPages {
        next: page(NEXT).unwrap_or_else(|| back.clone()),
        back,
        is_part: typed.get(PART).is_some_and(|part| !part.is_empty()),
    }
}

/// The members of a form. A name that begins with a slash is a JSON pointer to a member inside of others, and its
/// value counts although it is empty; other fields that are empty are absent.
pub(super) fn read(typed: &TypedFields) -> Result<Map<String, Value>, ProblemDetails> {
    let mut members = Map::new();
    for (name, text) in &typed.0 {
        let is_about_pages = [BACK, NEXT, PART].contains(&name.as_str());
        if is_about_pages || text.is_empty() && !name.starts_with('/') {
            continue;
        }
        let (name, value) = match name.strip_suffix(JSON) {
            None => (name.as_str(), Value::String(text.clone())),
            Some(name) => {
                let read = body::value(text.as_bytes());
                let read = read.map_err(|problem| {
                    invalid(&format!("{name} is no JSON: {}", problem.detail))
                })?;
                (name, read)
            }
        };
        if !insert(&mut members, name, value) {
            return Err(invalid(&format!("{name} is there twice")));
        }
    }
    Ok(members)
}

/// Inserts a member, with the objects around it; `false` if it is there.
fn insert(members: &mut Map<String, Value>, name: &str, value: Value) -> bool {
    let Some(pointer) = name.strip_prefix('/') else {
        return members.insert(name.to_owned(), value).is_none();
    };
    let mut path = pointer.splitn(MAX_DEPTH, '/').peekable();
    let mut members = members;
    while let Some(segment) = path.next() {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if path.peek().is_none() {
            return members.insert(segment, value).is_none();
        }
        let inner = members.entry(segment);
        let inner = inner.or_insert_with(|| Value::Object(Map::new()));
        let Some(object) = inner.as_object_mut() else {
            return false;
        };
        members = object;
    }
    false
}

/// Returns `true` if a link leads to a page below `/inspector/`, from there.
pub(super) fn is_inside(link: &str) -> bool {
    let path = link.split(['?', '#']).next().unwrap_or_default();
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%/?&=+#!$'()*,;@".contains(&byte);
    // Browsers read an encoded dot as a dot.
    let is_encoded = path.to_ascii_lowercase().contains("%2e");
    link.bytes().all(is_plain)
        && !is_encoded
        && !path.is_empty()
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Shows another page, below `/inspector/`.
pub(super) fn see_other(place: PagePlace, to: &str) -> Response {
    let location = HeaderValue::try_from(place.link(to));
    let location = location.unwrap_or(HeaderValue::from_static("runs"));
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn members_of(form: &[u8]) -> Result<Value, ProblemDetails> {
        read(&TypedFields::of(form)).map(Value::Object)
    }

    #[test]
    fn fields_are_members_and_those_of_json_are_values() {
        let form = b"decision=approved&reason=a%0D%0Ab+c&digest=&data%3Ajson=%7B%22a%22%3A%5B1%2Cnull%5D%7D&_back=runs%2Fr&_next=inbox&_part=verdict";
        let expected =
            json!({"decision": "approved", "reason": "a\nb c", "data": {"a": [1, null]}});
        assert_eq!(members_of(form).unwrap(), expected);
        let around = pages(&TypedFields::of(form));
        let names = (around.back.as_str(), around.next.as_str(), around.is_part);
        assert_eq!(names, ("runs/r", "inbox", true));
        let around = pages(&TypedFields::of(
            b"_back=%2F%2Fevil.example&_next=runs%2F%7Brun_id%7D",
        ));
        let names = (around.back.as_str(), around.next.as_str(), around.is_part);
        assert_eq!(names, ("inbox", "runs/{run_id}", false));
    }

    #[test]
    fn a_field_whose_name_is_a_pointer_is_a_member_inside_of_others_and_may_be_empty() {
        let form =
            b"/prompts/a~1b.yaml/system=s%0D%0At&/prompts/a~1b.yaml/user=&/prompts/c/system=x";
        let expected = json!({"prompts": {
            "a/b.yaml": {"system": "s\nt", "user": ""},
            "c": {"system": "x"},
        }});
        assert_eq!(members_of(form).unwrap(), expected);
        let deep = format!("{}=1", "/a".repeat(100_000));
        let found = members_of(deep.as_bytes()).unwrap();
        let depth = |value: &Value| {
            let inner = |value: &Value| value.as_object()?.values().next().cloned();
            std::iter::successors(Some(value.clone()), |value| inner(value)).count()
        };
        assert_eq!(depth(&found), MAX_DEPTH + 1);
    }

    #[test]
    fn a_field_that_is_there_twice_or_is_no_json_is_refused_by_its_name() {
        for (form, why) in [
            ("reason=a&reason=b", "reason is there twice"),
            ("data=1&data%3Ajson=1", "data is there twice"),
            ("/a/b=1&/a/b=2", "/a/b is there twice"),
            ("/a=1&/a/b=2", "/a/b is there twice"),
            ("data%3Ajson=%7B", "data is no JSON"),
        ] {
            let refused = members_of(form.as_bytes()).unwrap_err();
            assert!(refused.detail.contains(why), "{}", refused.detail);
        }
    }

    #[test]
    fn the_next_page_is_one_of_the_inspector() {
        for inside in [
            "inbox",
            "runs/r-1?step=a%2Fb",
            "runs/r%2Fcall/frames?frame=3#f3",
            "runs?status=failed",
        ] {
            assert!(is_inside(inside), "{inside}");
        }
        for outside in [
            "",
            "/runs",
            "//evil.example",
            "https://evil.example",
            "../runs",
            "runs/../../x",
            "a//b",
            "runs\\x",
            "javascript:alert(1)",
            "%2e%2e/metrics",
            "runs/.%2E/x",
            "runs\r\nset-cookie: a",
            "?x",
            "runs/..",
            "./x",
            "r\u{e9}",
        ] {
            assert!(!is_inside(outside), "{outside}");
        }
    }
}
