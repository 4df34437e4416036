//! The `Accept` header of a request (RFC 9110, 12.5.1).

use axum::http::{HeaderMap, header};

/// The media ranges that a client accepts, each with its weight.
pub(super) struct MediaRanges<'h>(Vec<(&'h str, f32)>);

impl<'h> MediaRanges<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        Self(
            values
                .flat_map(|value| value.split(','))
                .map(range)
                .collect(),
        )
    }

    /// Returns `true` if the client accepts a media type; one that states nothing accepts all.
    pub(super) fn accepts(&self, kind: &str) -> bool {
        self.0.is_empty() || self.weight(kind) > 0.0
    }

    /// The weight that the most specific range gives a media type.
    pub(super) fn weight(&self, kind: &str) -> f32 {
        let (group, _) = kind.split_once('/').unwrap_or_default();
        let weight = |wanted: &str| {
            let mut ranges = self.0.iter();
            let found = ranges.find(|(range, _)| range.eq_ignore_ascii_case(wanted));
            found.map(|(_, weight)| *weight)
        };
        let own = weight(kind).or_else(|| weight(&format!("{group}/*")));
        own.or_else(|| weight("*/*")).unwrap_or_default()
    }
}

/// A media range and its weight.
fn range(text: &str) -> (&str, f32) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default();
    let mut weights = parts.filter_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let weight = weights
        .next_back()
        .map_or(Some(1.0), |text| text.parse().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight));
    (range, weight.unwrap_or_default())
}

/// Returns `true` if a client prefers HTML to JSON. Clients without a preference are programs.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = MediaRanges::of(headers);
    accepted.weight("text/html") > accepted.weight("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_html_and_programs_json() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, html) in [
            (&[][..], false),
            (&["*/*"], false),
            (&[browser], true),
            (&["text/html"], true),
            (&["TEXT/HTML;Q=0.5, application/json;q=0.4"], true),
            (&["text/html;q=0.4", "application/json;q=0.5"], false),
            (&["text/*, application/json;q=0.9"], true),
            (&["text/html;q=0, */*"], false),
            (&["text/html;q=2"], false),
            (&["text/html;q=x, */*;q=0.1"], false),
            (&["application/json, text/html"], false),
            (&["image/png"], false),
            (&[",;,"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(prefers_html(&headers), html, "{accept:?}");
        }
    }
}
