//! Environment files.
