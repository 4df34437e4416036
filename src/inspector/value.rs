//! Values as pages show them: as they are recorded, in as much room as there is, and never cut without a
//! word on how long they are and where all of it is.

use ktsu_history::payload::{Payload, PayloadType};
use ktsu_history::step_record::PlacedValue;
use ktsu_ledger::CanonicalJson;
use maud::{Markup, html};

use crate::frame::{PagePlace, query, root_of, segment};
use crate::text::{Verbatim, beginning};
use crate::units::{counted, size};

/// The most characters of a value on the page; the API has all of it.
const MAX_VALUE: usize = 16 * 1024;
/// The most characters of a value that is wanted whole.
const MAX_WHOLE: usize = 1024 * 1024;
/// Values inside of others are laid out down to so many levels, and are JSON below.
const MAX_LEVELS: usize = 6;
/// A list or an object that is shorter is on one line.
const ONE_LINE: usize = 60;

/// A value, as JSON. What is left out of a long one is said.
pub(crate) fn value(json: &str) -> Markup {
    let (shown, left_out) = beginning(json, MAX_VALUE);
    html! {
        pre tabindex="0" { (Verbatim(shown)) }
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more; the API has all of it" }
        }
    }
}

/// How values are shown on a page.
pub(crate) struct ValueView<'p> {
    /// The place of the page.
    pub(crate) place: PagePlace,
    /// The run.
    pub(crate) run_id: &'p str,
    /// The address of the page that shows a value whole; none in a file.
    pub(crate) page: Option<String>,
    /// The name of the value that is wanted whole.
    pub(crate) all: &'p str,
    /// The most characters of any other.
    pub(crate) most: usize,
}

/// A value that has a name on its page, and an address in the API.
pub(crate) struct ShownValue<'p> {
    /// Its name: the path in the envelope, or the frame and the place in it.
    pub(crate) name: String,
    /// The query of its address.
    pub(crate) query: String,
    /// Its JSON.
    pub(crate) json: &'p str,
}

impl ValueView<'_> {
    /// A value in a frame.
    pub(crate) fn placed(&self, value: &PlacedValue) -> Markup {
        let (frame, at) = (value.frame.to_string(), &value.at);
        match &value.json {
            None => html! { p class="dim" { (size(value.bytes)) ", not shown to you" } },
            Some(json) => self.named(&ShownValue {
                name: format!("{frame}:{at}"),
                query: query(&[("frame", &frame), ("at", at)]),
                json,
            }),
        }
    }

    /// A value of the envelope, by its path.
    pub(crate) fn of_envelope(&self, path: &str, json: &str) -> Markup {
        self.named(&ShownValue {
            name: path.to_owned(),
            query: query(&[("path", path)]),
            json,
        })
    }

    fn named(&self, value: &ShownValue<'_>) -> Markup {
        let is_wanted = self.all == value.name;
        let most = if is_wanted { MAX_WHOLE } else { self.most };
        let mut room = ValueRoom {
            left: most,
            is_cut: false,
        };
        let found = Payload::of(value.json);
        let shown = tree(found, 0, &mut room);
        let is_cut = room.is_cut;
        let page = self.page.as_deref();
        let all = page.map(|page| format!("{page}{}#all", query(&[("all", &value.name)])));
        let run = segment(root_of(self.run_id));
        let download = |form: &str| {
            let to = format!("../runs/{run}/payload{}&download={form}", value.query);
            self.place.link(&to)
        };
        html! {
            div class="value" id=[is_wanted.then_some("all")] { (shown) }
            @if is_cut || is_wanted {
                p class="cut" {
                    @if is_cut { "Cut: the first " (counted(most as u64, "character")) " of " (size(value.json.len())) ". " }
                    @else { "All of it, " (size(value.json.len())) ". " }
                    @if let Some(all) = all {
                        @if !is_wanted { a href=(all) { "All" } " · " }
                        a href=(download("json")) download { "Download" }
                        @if found.kind() == PayloadType::String { " · " a href=(download("text")) download { "as text" } }
                    }
                }
            }
        }
    }
}

/// A value of a definition, as JSON: as much as there is room for, with the address of all of it; whole where it has none.
pub(crate) fn defined_value(json: &str, most: usize, all: Option<&str>) -> Markup {
    let most = if all.is_some() { most } else { MAX_WHOLE };
    let mut room = ValueRoom {
        left: most,
        is_cut: false,
    };
    let shown = tree(Payload::of(json), 0, &mut room);
    html! {
        div class="value" { (shown) }
        (cut_of_defined(room.is_cut, most, json.len(), all))
    }
}

/// A schema of a definition, as JSON on lines, as [`defined_value`].
pub(crate) fn defined_schema(schema: &CanonicalJson, most: usize, all: Option<&str>) -> Markup {
    let lines = serde_json::to_string_pretty(&schema.to_value());
    let lines = lines.unwrap_or_else(|_| schema.as_str().to_owned());
    defined_text(&lines, most, all)
}

/// A text of a definition, as [`defined_value`].
pub(crate) fn defined_text(text: &str, most: usize, all: Option<&str>) -> Markup {
    let most = if all.is_some() { most } else { MAX_WHOLE };
    let (shown, left_out) = beginning(text, most);
    html! {
        div class="value" {
            // Browsers leave out a line end with which such an element begins.
            pre tabindex="0" { @if shown.starts_with('\n') { "\n" } (Verbatim(shown)) @if left_out > 0 { "…" } }
        }
        (cut_of_defined(left_out > 0, most, text.len(), all))
    }
}

fn cut_of_defined(is_cut: bool, most: usize, bytes: usize, all: Option<&str>) -> Markup {
    html! {
        @if is_cut {
            p class="cut" {
                "Cut: the first " (counted(most as u64, "character")) " of " (size(bytes)) ". "
                @if let Some(all) = all { a href=(all) { "All" } }
            }
        }
    }
}

/// The room that is left for a value.
struct ValueRoom {
    /// In characters.
    left: usize,
    /// True if something is left out.
    is_cut: bool,
}

impl ValueRoom {
    /// As much of a text as there is room for, and whether something of it is left out.
    fn take<'t>(&mut self, text: &'t str) -> (&'t str, bool) {
        let (shown, left_out) = beginning(text, self.left);
        self.left = self.left.saturating_sub(shown.chars().count());
        self.is_cut |= left_out > 0;
        (shown, left_out > 0)
    }
}

/// A value as a tree: members by name, texts as text. It is as deep as levels are laid out.
fn tree(value: Payload<'_>, level: usize, room: &mut ValueRoom) -> Markup {
    let json = value.json();
    let is_laid_out = level < MAX_LEVELS && json.len() > 2 && (level == 0 || json.len() > ONE_LINE);
    match value.kind() {
        PayloadType::String => text(&value.characters().unwrap_or_default(), json, room),
        PayloadType::Array | PayloadType::Object if is_laid_out => {
            let entries = value.entries();
            let count = entries.len();
            let mut shown = Vec::new();
            for (name, below) in entries {
                if room.left == 0 {
                    room.is_cut = true;
                    break;
                }
                room.left = room.left.saturating_sub(name.chars().count() + 1);
                shown.push((name, tree(below, level + 1, room)));
            }
            let left_out = count - shown.len();
            html! {
                dl class="tree" {
                    @for (name, below) in &shown { div { dt { (Verbatim(name)) } dd { (below) } } }
                }
                @if left_out > 0 { span class="dim" { "… and " (left_out) " more" } }
            }
        }
        _ => plain(json, room),
    }
}

/// The JSON of a value, on one line.
fn plain(json: &str, room: &mut ValueRoom) -> Markup {
    let (shown, is_cut) = room.take(json);
    html! { code { (Verbatim(shown)) @if is_cut { "…" } } }
}

/// A text: as JSON where it is short, else as its lines.
fn text(characters: &str, json: &str, room: &mut ValueRoom) -> Markup {
    if json.len() <= ONE_LINE && !json.contains('\\') {
        return plain(json, room);
    }
    let (shown, is_cut) = room.take(characters);
    html! {
        // Browsers leave out a line end with which such an element begins.
        pre tabindex="0" { @if shown.starts_with('\n') { "\n" } (Verbatim(shown)) @if is_cut { "…" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(all: &str) -> ValueView<'_> {
        ValueView {
            place: PagePlace::BELOW,
            run_id: "run_1/call",
            page: Some("page".to_owned()),
            all,
            most: 100,
        }
    }

    #[test]
    fn a_value_is_a_tree_of_its_members_with_texts_as_text() {
        let json = format!(
            r#"{{"<b>":[1,2.50],"long":"a\nb","short":"x\u202e","t":true,"w":"{}"}}"#,
            "word ".repeat(15)
        );
        let shown = view("").of_envelope("step.a", &json).into_string();
        for part in [
            "<dt>&lt;b&gt;</dt><dd><code>[1,2.50]</code></dd>",
            "<dt>long</dt><dd><pre tabindex=\"0\">a\nb</pre></dd>",
            "<dt>short</dt><dd><pre tabindex=\"0\">x\\u{202e}</pre></dd>",
            "<pre tabindex=\"0\">word word",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_cut_value_says_how_long_it_is_and_where_all_of_it_is() {
        let json = format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(5_000));
        let shown = view("").of_envelope("step.a b", &json).into_string();
        assert!(
            shown.contains("the first 100 characters of 4.9 KiB"),
            "{shown}"
        );
        assert!(shown.contains("href=\"page?all=step.a+b#all\""), "{shown}");
        let download = "href=\"../../runs/run_1/payload?path=step.a+b&amp;download=json\"";
        assert!(shown.contains(download), "{shown}");
        assert!(
            shown.matches('x').count() < 110 && shown.contains("… and 1 more"),
            "{shown}"
        );
        let all = view("step.a b")
            .of_envelope("step.a b", &json)
            .into_string();
        assert!(
            all.matches('x').count() > 5_000 && all.contains("All of it, 4.9 KiB"),
            "{all}"
        );
        let short = view("").of_envelope("step.a", "[1]").into_string();
        assert!(!short.contains("Download"), "{short}");
    }

    #[test]
    fn depth_and_number_of_members_are_bounded() {
        let deep = format!(
            "{}{}",
            "[[1234567890],".repeat(900),
            "0".to_owned() + &"]".repeat(900)
        );
        let shown = view("x").of_envelope("x", &deep).into_string();
        assert!(shown.matches("<dl").count() <= MAX_LEVELS * 2, "{shown}");
        let many = format!("[{}0]", "0,".repeat(100_000));
        let shown = view("").of_envelope("x", &many).into_string();
        assert!(shown.matches("<dt>").count() <= 100, "{shown}");
    }

    #[test]
    fn a_value_that_one_may_not_read_has_its_length() {
        let closed = PlacedValue {
            frame: 3,
            at: "/data/content".to_owned(),
            bytes: 2_048,
            json: None,
        };
        let shown = view("").placed(&closed).into_string();
        assert!(shown.contains("2.0 KiB, not shown to you"), "{shown}");
    }
}
