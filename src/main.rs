//! The `ktsu` binary.
fn main() {}
