//! The command line: the only part of ktsu that prints.

pub mod text;
