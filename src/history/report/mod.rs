//! A run for people elsewhere: as a diagram, and as one page that needs nothing beside it.

mod html;
mod mermaid;

pub use html::{Text, page, row};
pub use mermaid::flowchart;
