//! The objects and the relations of a world as tables.

use ktsu_history::world::{ObjectView, RelationView};
use ktsu_history::world_labels::WorldLabels;
use maud::{Markup, html};

use crate::frame::anchor;
use crate::text::{Verbatim, beginning};
use crate::world_svg::colour;

/// What the tables of a page share.
pub(crate) struct WorldTables<'t> {
    /// The names of objects.
    pub(crate) labels: &'t WorldLabels,
    /// The types of the world, in order.
    pub(crate) types: &'t [&'t str],
    /// The object that is selected.
    pub(crate) selected: &'t str,
    /// The most characters of the data in a row.
    pub(crate) most: usize,
    /// The address of an object.
    pub(crate) link: &'t dyn Fn(&str) -> String,
    /// The address of a frame, where there is one.
    pub(crate) frame: &'t dyn Fn(u64) -> Option<String>,
}

/// The name of the row of an object within its page.
pub(crate) fn row_anchor(id: &str) -> String {
    anchor("row", id)
}

impl WorldTables<'_> {
    pub(crate) fn objects(&self, objects: &[ObjectView]) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label="Objects" {
                table class="entries" {
                    thead {
                        tr {
                            th scope="col" { "Object" }
                            th scope="col" { "Type" }
                            th scope="col" { "Id" }
                            th scope="col" class="number" { "Changed" }
                            th scope="col" { "Data" }
                        }
                    }
                    tbody { @for object in objects { (self.object(object)) } }
                }
            }
        }
    }

    fn object(&self, object: &ObjectView) -> Markup {
        let is_selected = object.id == self.selected;
        let name = self.labels.of_object(&object.kind, &object.data);
        let name = name.unwrap_or_else(|| object.id.clone());
        html! {
            tr id=(row_anchor(&object.id)) class=[is_selected.then_some("selected")] {
                th scope="row" class="named" {
                    a href=((self.link)(&object.id)) aria-current=[is_selected.then_some("true")] { (Verbatim(name)) }
                }
                td { span class={ "type " (colour(self.types, &object.kind)) } { (Verbatim(&object.kind)) } }
                td class="id" { (Verbatim(&object.id)) }
                td class="number" { (self.frame_of(object.changed)) }
                td class="words" { (self.data(object.data.as_str())) }
            }
        }
    }

    pub(crate) fn relations(&self, relations: &[RelationView]) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label="Relations" {
                table class="entries" {
                    thead {
                        tr {
                            th scope="col" { "From" }
                            th scope="col" { "Relation" }
                            th scope="col" { "To" }
                            th scope="col" class="number" { "Changed" }
                            th scope="col" { "Data" }
                        }
                    }
                    tbody {
                        @for relation in relations {
                            tr {
                                td class="named" { (self.end(&relation.source_id)) }
                                th scope="row" { (Verbatim(&relation.kind)) }
                                td class="named" { (self.end(&relation.target_id)) }
                                td class="number" { (self.frame_of(relation.changed)) }
                                td class="words" { @if relation.data.as_str() != "{}" { (self.data(relation.data.as_str())) } }
                            }
                        }
                    }
                }
            }
        }
    }

    /// An object by its name, as a link to it where it exists.
    pub(crate) fn end(&self, id: &str) -> Markup {
        let found = self.labels.find(id);
        html! {
            @match found {
                Some((_, name)) => a href=((self.link)(id)) { (Verbatim(name.unwrap_or_else(|| id.to_owned()))) },
                None => { span class="id" { (Verbatim(id)) } span class="dim" { " (not there)" } },
            }
        }
    }

    fn frame_of(&self, seq: u64) -> Markup {
        html! {
            @match (self.frame)(seq) {
                Some(link) => a href=(link) { (seq) },
                None => (seq),
            }
        }
    }

    fn data(&self, json: &str) -> Markup {
        let (shown, left_out) = beginning(json, self.most);
        html! {
            (Verbatim(shown))
            @if left_out > 0 { span class="dim" { " … " (crate::units::counted(left_out as u64, "character")) " more" } }
        }
    }
}
