//! The search in the payloads of a run: texts and numbers of its frames that have some words.

use ktsu_ledger::StreamId;
use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::lineage::item_name;

use ktsu_projections::step_name::path_in;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Blobs;
use super::frame_page::{MAX_BYTES, is_within};
use super::provenance::pointer_of;

/// The most hits of an answer, except where one frame has more.
pub const MAX_HITS: usize = 200;
/// The most hits that are shown of one frame.
const MAX_FRAME_HITS: usize = 20;
/// The most frames that are looked at for an answer.
const MAX_FRAMES: usize = 10_000;
/// Frames that are read at once.
const PAGE: usize = 200;
/// The characters of an excerpt on either side of the words.
const AROUND: usize = 60;

/// The places of a run at which words occur.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchPage {
    /// The places, in the order of the frames.
    pub hits: Vec<SearchHit>,
    /// The number of frames that were looked at.
    pub searched: usize,
    /// The frame at which the search continues, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A place at which words occur.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchHit {
    /// The frame.
    pub frame: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The step or the item that it is about, by its path from the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// JSON pointer to the value in the frame.
    pub at: String,
    /// The words, with some of what is around them.
    pub excerpt: String,
    /// Where the excerpt begins in the text, in characters.
    pub from: usize,
    /// Of the last hit that is shown of a frame: the number of those that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<usize>,
}

/// Looks for words, without regard to case, in the frames of a run or, with a `scope`, of an inline
/// child, from a frame on. An answer looks at a bounded number of frames and bytes.
///
/// # Errors
/// [`StoreError`].
pub fn search(
    reader: &dyn Reader,
    stream: &StreamId,
    scope: &str,
    words: &str,
    (from, most): (u64, usize),
) -> Result<SearchPage, StoreError> {
    let words = words.to_lowercase();
    let mut page = SearchPage::default();
    if words.is_empty() || reader.tail(stream)?.is_none() {
        return Ok(page);
    }
    let path = Ancestry::of(reader, stream)?;
    let (mut at, mut bytes) = (from, 0);
    loop {
        let records = path.read(reader, at, PAGE)?;
        if records.is_empty() {
            return Ok(page);
        }
        for record in records {
            let is_full = bytes > MAX_BYTES || page.searched == MAX_FRAMES;
            if is_full || page.hits.len() >= most.min(MAX_HITS) {
                page.next = Some(record.seq);
                return Ok(page);
            }
            let owner = path.owner(record.seq).unwrap_or(stream);
            let frame = Blobs::new(reader).decode(owner, &record)?;
            at = record.seq + 1;
            page.searched += 1;
            if !is_within(&frame.scope, scope) {
                continue;
            }
            let text = record.to_json_with(&frame);
            bytes += text.len();
            let json: Value = serde_json::from_str(&text).unwrap_or_default();
            let mut found = HitCollector {
                words: &words,
                hits: Vec::new(),
                left_out: 0,
            };
            found.value(&mut "/data".to_owned(), &json["data"]);
            let step = frame.event.task();
            let step = step.map(|(step, item)| path_in(&frame.scope, &item_name(step, item)));
            let hits = found.hits.into_iter();
            page.hits.extend(hits.map(|(at, from, excerpt)| SearchHit {
                frame: record.seq,
                kind: frame.event.kind().to_owned(),
                step: step.clone(),
                at,
                excerpt,
                from,
                left_out: None,
            }));
            if let Some(last) = page.hits.last_mut().filter(|_| found.left_out > 0) {
                last.left_out = Some(found.left_out);
            }
        }
    }
}

struct HitCollector<'w> {
    words: &'w str,
    /// Pointers, the beginnings of excerpts, and excerpts.
    hits: Vec<(String, usize, String)>,
    left_out: usize,
}

impl HitCollector<'_> {
    /// Values are as deep as the parser reads them, which is a bound.
    fn value(&mut self, at: &mut String, value: &Value) {
        let length = at.len();
        match value {
            Value::String(text) => self.text(at, text),
            Value::Number(number) => self.text(at, &number.to_string()),
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    at.push_str(&format!("/{place}"));
                    self.value(at, item);
                    at.truncate(length);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    at.push_str(&pointer_of(name));
                    self.value(at, member);
                    at.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn text(&mut self, at: &str, text: &str) {
        let Some((from, excerpt)) = excerpt(text, self.words) else {
            return;
        };
        if self.hits.len() == MAX_FRAME_HITS {
            self.left_out += 1;
            return;
        }
        self.hits.push((at.to_owned(), from, excerpt));
    }
}

/// The first place of a text that has words, which are in lower case: where the excerpt begins, in
/// characters, and the excerpt.
fn excerpt(text: &str, words: &str) -> Option<(usize, String)> {
    let lower: String = text.chars().flat_map(char::to_lowercase).collect();
    let found = lower.find(words)?;
    // A character may have another length in lower case.
    let mut passed = 0;
    let begin = text.chars().position(|c| {
        passed += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        passed > found
    });
    let from = begin.unwrap_or_default().saturating_sub(AROUND);
    let most = words.chars().count().min(AROUND * 2) + AROUND * 2;
    Some((from, text.chars().skip(from).take(most).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_excerpt_has_the_words_whatever_their_case() {
        assert_eq!(excerpt("nothing", "word"), None);
        assert_eq!(excerpt("a Word", "word"), Some((0, "a Word".to_owned())));
        let long = format!("{}İSTANBUL und ÄRGER{}", "İ".repeat(100), "y".repeat(300));
        let (from, shown) = excerpt(&long, "ärger").unwrap();
        assert_eq!(from, 113 - AROUND);
        assert!(shown.contains("ÄRGER"), "{shown}");
        assert_eq!(shown.chars().count(), 5 + AROUND * 2);
    }

    #[test]
    fn of_a_frame_with_many_hits_some_are_shown_and_the_others_counted() {
        let mut found = HitCollector {
            words: "x",
            hits: Vec::new(),
            left_out: 0,
        };
        let many = vec!["X"; MAX_FRAME_HITS + 3];
        let value = json!({"a/b": many, "n": 12, "t": true});
        found.value(&mut "/data".to_owned(), &value);
        assert_eq!(found.hits.len(), MAX_FRAME_HITS);
        assert_eq!(found.left_out, 3);
        assert_eq!(found.hits[1].0, "/data/a~1b/1");
    }
}
