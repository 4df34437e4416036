//! Configuration files: YAML with places, values read with every fault at its place, and the shapes
//! from which their JSON Schemas are made.

pub mod fault;
mod mask;
pub mod outline;
pub mod read;
pub mod render;
pub mod retry;
pub mod shape;
pub mod variables;
pub mod yaml;
