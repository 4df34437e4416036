//! Kits: folders of workflow files.
