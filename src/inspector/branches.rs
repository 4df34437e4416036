//! The branches of a run as a tree, and what to compare it with.

use ktsu_history::family::{FamilyMember, RunFamily};
use maud::{Markup, html};

use crate::diff::diff_link;
use crate::frame::{PagePlace, segment};
use crate::status::badge;
use crate::text::Verbatim;
use crate::units::counted;

/// The family of a run, with a comparison for each branch, and one with any other run.
pub(crate) fn branches(place: PagePlace, run_id: &str, family: &RunFamily) -> Markup {
    html! {
        @if !family.members.is_empty() {
            h3 { "Branches" }
            ul class="branches" { @for member in &family.members { (row(place, run_id, member)) } }
            @if family.left_out > 0 { p class="dim" { "and " (family.left_out) " more" } }
            @if family.is_partial { p class="dim" { "Only the newest branches of the ledger were looked at." } }
        }
        form method="get" action=(place.link("diff")) class="filter compare" {
            input type="hidden" name="a" value=(Verbatim(run_id));
            label { "Compare with " input type="text" name="b" required placeholder="run_… or branch_…" spellcheck="false"; }
            button type="submit" { "Compare" }
        }
    }
}

fn row(place: PagePlace, run_id: &str, member: &FamilyMember) -> Markup {
    let row = &member.row;
    let is_own = row.run_id == run_id;
    html! {
        li aria-current=[is_own.then_some("true")] {
            span class="lines" aria-hidden="true" { (lines(&member.is_followed)) }
            a class="id" href=(place.link(&format!("runs/{}", segment(&row.run_id)))) { (Verbatim(&row.run_id)) }
            " " (badge(&row.status))
            @if let Some(at) = row.fork_position { " " span class="dim" { "shares " (counted(at, "frame")) } }
            @if let Some(parent) = &row.parent_run_id {
                " " a href=(diff_link(place, parent, &row.run_id)) { "Compare" }
            }
        }
    }
}

/// The lines of a tree before a member: `│  ├─ `.
fn lines(is_followed: &[bool]) -> String {
    let Some((own, above)) = is_followed.split_last() else {
        return String::new();
    };
    let above = above.iter().map(|is_followed| match is_followed {
        true => "│  ",
        false => "   ",
    });
    let own = if *own { "├─ " } else { "└─ " };
    above.chain([own]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lead_from_a_branch_to_what_it_was_forked_from() {
        assert_eq!(lines(&[]), "");
        assert_eq!(lines(&[true]), "├─ ");
        assert_eq!(lines(&[true, false]), "│  └─ ");
        assert_eq!(lines(&[false, true]), "   ├─ ");
    }
}
