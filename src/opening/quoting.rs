//! Text as a shell takes it.

use std::path::Path;

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    quoted_text(&path.display().to_string())
}

/// A text as a shell takes it.
pub fn quoted_text(text: &str) -> String {
    let plain = |one: char| one.is_alphanumeric() || "/._-+:@%=".contains(one);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
