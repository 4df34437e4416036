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
pub(super) const FIRST: &str = "inbox";
/// The names of fields that hold JSON end with it.
const JSON: &str = ":json";

/// The pages around a form, below `/inspector/`; an extension of responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormPages {
    /// The one that it is on.
    pub(super) back: String,
    /// The one that is shown after it.
    pub(super) next: String,
}

/// The members of a form, and the pages around it.
pub(super) fn read(form: &[u8]) -> Result<(Map<String, Value>, FormPages), ProblemDetails> {
    let (mut members, mut back, mut next) = (Map::new(), None, None);
    for (name, value) in url::form_urlencoded::parse(form) {
        if value.is_empty() {
            continue;
        }
        let pages = [(BACK, &mut back), (NEXT, &mut next)];
        if let Some((_, page)) = pages.into_iter().find(|(field, _)| name == *field) {
            let is_page = |page: &String| is_inside(&page.replace(NEW_RUN, "R"));
            *page = Some(value.into_owned()).filter(is_page);
            continue;
        }
        // What browsers send of a text of several lines.
        let text = value.replace("\r\n", "\n");
        let (name, value) = match name.strip_suffix(JSON) {
            None => (name.as_ref(), Value::String(text)),
            Some(name) => {
                let read = body::value(text.as_bytes());
                let read = read.map_err(|problem| {
                    invalid(&format!("{name} is no JSON: {}", problem.detail))
                })?;
                (name, read)
            }
        };
        if members.insert(name.to_owned(), value).is_some() {
            return Err(invalid(&format!("{name} is there twice")));
        }
    }
    let back = back.unwrap_or_else(|| FIRST.to_owned());
    let next = next.unwrap_or_else(|| back.clone());
    Ok((members, FormPages { back, next }))
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

    #[test]
    fn fields_are_members_and_those_of_json_are_values() {
        let form = b"decision=approved&reason=a%0D%0Ab+c&digest=&data%3Ajson=%7B%22a%22%3A%5B1%2Cnull%5D%7D&_back=runs%2Fr&_next=inbox";
        let (members, pages) = read(form).unwrap();
        let expected =
            json!({"decision": "approved", "reason": "a\nb c", "data": {"a": [1, null]}});
        assert_eq!(Value::Object(members), expected);
        assert_eq!(
            (pages.back.as_str(), pages.next.as_str()),
            ("runs/r", "inbox")
        );
        let (_, pages) = read(b"_back=%2F%2Fevil.example&_next=runs%2F%7Brun_id%7D").unwrap();
        assert_eq!(
            (pages.back.as_str(), pages.next.as_str()),
            ("inbox", "runs/{run_id}")
        );
    }

    #[test]
    fn a_field_that_is_there_twice_or_is_no_json_is_refused_by_its_name() {
        for (form, why) in [
            ("reason=a&reason=b", "reason is there twice"),
            ("data=1&data%3Ajson=1", "data is there twice"),
            ("data%3Ajson=%7B", "data is no JSON"),
        ] {
            let refused = read(form.as_bytes()).unwrap_err();
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
