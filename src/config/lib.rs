//! Configuration files: YAML with locations, readers that report every fault with its location, and
//! the shapes from which their JSON Schemas are generated.

pub mod fault;
mod mask;
pub mod outline;
pub mod read;
pub mod render;
pub mod retry;
pub mod shape;
pub mod variables;
pub mod yaml;
