//! A run as a diagram, and as one self-contained page.

mod html;
mod mermaid;
mod world_graph;

pub use html::{Text, page, row};
pub use mermaid::flowchart;
pub use world_graph::{GraphFormat, world_graph};
