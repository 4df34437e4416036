//! World files: read with their places, linked with the rest of their kit, and looked through for
//! rules that cannot work as they are hardly meant.

mod draft;
mod entries;
mod file;
mod links;
mod lookups;
mod params;
mod reach;
mod responder;
mod roots;
mod rule;

pub(super) use draft::WorldDraft;
pub(super) use file::read;
pub(super) use links::check;
pub(super) use roots::{WorldRoots, name_of};
