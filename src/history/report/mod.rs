//! A run as a diagram, and as one self-contained page.

mod html;
mod mermaid;

pub use html::{Text, page, row};
pub use mermaid::flowchart;
