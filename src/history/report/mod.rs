//! Runs and worlds as diagrams.

mod mermaid;
mod world_graph;

pub use mermaid::flowchart;
pub use world_graph::{GraphFormat, PartObject, PartRelation, WorldPart, world_graph};
