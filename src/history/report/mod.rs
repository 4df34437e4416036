//! Runs and worlds as diagrams, and as self-contained pages.

mod html;
mod mermaid;
mod world_graph;
mod world_page;

pub use mermaid::flowchart;
pub use world_graph::{GraphFormat, world_graph};
pub use world_page::world_page;
