//! `verify.html`: the verifier of archives for browsers, as one file that needs no network.
//!
//! ```text
//! blake3 json          hashes and JSON, exact
//! archive frames       the files of an archive, its frames and their chains
//! signed claims        tree, checkpoints and keys; the verdicts
//! worker page          where it runs, and what it shows
//! ```
//!
//! The modules become one script. The page runs it, and so does its worker, from memory. The policy
//! of the page names script and style by their SHA-256, and permits no connection.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// Each module after those that it imports.
const MODULES: [&str; 8] = [
    include_str!("page/blake3.js"),
    include_str!("page/json.js"),
    include_str!("page/archive.js"),
    include_str!("page/frames.js"),
    include_str!("page/signed.js"),
    include_str!("page/claims.js"),
    include_str!("page/worker.js"),
    include_str!("page/page.js"),
];

/// The name of the file.
pub const NAME: &str = "verify.html";

/// The page.
#[derive(Debug)]
pub struct VerifierPage {
    /// The whole file.
    pub text: String,
    /// Its Content-Security-Policy, which the file contains, too.
    pub policy: String,
}

/// The page of this version: the same bytes every time.
pub fn verifier_page() -> &'static VerifierPage {
    static PAGE: LazyLock<VerifierPage> = LazyLock::new(|| {
        // A block of its own: names of the script are no names of the window.
        let script = format!("\"use strict\";\n{{\n{}}}\n", modules());
        let digest = |text: &str| BASE64.encode(Sha256::digest(text));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; worker-src blob:; \
             connect-src 'none'; base-uri 'none'; form-action 'none'; \
             require-trusted-types-for 'script'; trusted-types ktsu-verify",
            digest(&script),
            digest(STYLE)
        );
        let text = TEMPLATE.replacen("{policy}", &policy, 1);
        let text = text.replacen("{style}", STYLE, 1);
        VerifierPage {
            text: text.replacen("{script}", &script, 1),
            policy,
        }
    });
    &PAGE
}

/// The SHA-256 of the file, as `sha256sum` prints it.
pub fn sha256() -> String {
    let digest = Sha256::digest(&verifier_page().text);
    digest
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The modules as one, without what they import from each other and export.
pub fn modules() -> String {
    let lines = MODULES.iter().flat_map(|module| module.lines());
    let lines = lines.filter(|line| !line.starts_with("import "));
    let lines = lines.map(|line| line.strip_prefix("export ").unwrap_or(line));
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_and_refers_to_nothing_else() {
        let text = &verifier_page().text;
        assert!(text.contains(&verifier_page().policy));
        assert!(!text.contains("{policy}") && !text.contains("{style}"));
        for mark in ["<script", "</script", "<style", "</style"] {
            assert_eq!(text.matches(mark).count(), 1, "{mark}");
        }
        for other in [
            "src=",
            "href=",
            "http:",
            "https:",
            "import ",
            "url(",
            "innerHTML",
        ] {
            assert!(!text.contains(other), "{other}");
        }
        let modules: usize = MODULES.iter().map(|module| module.len()).sum();
        assert!(modules < 60_000, "{modules}");
    }
}
