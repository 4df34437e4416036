//! Names that lead somewhere else, or try to.

use std::path::Path;

/// What stands outside, and must not be opened.
pub(super) const BAIT: &str = "bait";

/// Over two hundred of them. `outside` is a folder that is there, beside the kit.
pub(super) fn all(outside: &Path) -> Vec<String> {
    let outside = outside.to_str().unwrap();
    let mut names = Vec::new();
    let steps = [
        "../",
        "..%2f",
        "..%2F",
        "%2e%2e/",
        "%2e%2e%2f",
        "%252e%252e%252f",
        "..%252f",
        "..\\",
        "..%5c",
        "%c0%ae%c0%ae/",
        "....//",
        "..;/",
        "\u{2024}\u{2024}/",
        "\u{ff0e}\u{ff0e}/",
        "..\u{2215}",
        "..\u{ff0f}",
        ".../",
        "./../",
        "x/../../",
        "workflows/../../",
    ];
    let targets = [
        "bait",
        "bait.workflow.yaml",
        "bait.agent.yaml",
        "bait.server.yaml",
        "etc/passwd",
    ];
    for step in steps {
        for target in targets {
            names.push(format!("{step}{target}"));
        }
        names.push(format!("{}etc/passwd", step.repeat(12)));
        names.push(format!("{}outside/bait.workflow.yaml", step.repeat(2)));
    }
    for target in targets {
        names.push(format!("{outside}/{target}"));
        names.push(format!("/{outside}/{target}"));
        names.push(format!("file://{outside}/{target}"));
        names.push(format!("{outside}/{target}\0.workflow.yaml"));
        names.push(format!("{outside}/{target}%00.workflow.yaml"));
        names.push(format!("../outside/{target}\0"));
        // Links that the kit holds.
        names.push(format!("linked/{target}"));
        names.push(format!("workflows/linked/{target}"));
        names.push(format!("agents/linked/{target}"));
        names.push(format!("./linked/../linked/{target}"));
    }
    names.extend(
        [
            "/etc/passwd",
            "//etc/passwd",
            "/proc/self/environ",
            "/dev/zero",
            "/dev/stdin",
            "~/.ssh/id_rsa",
            "~root",
            "C:\\Windows\\win.ini",
            "C:bait",
            "\\\\server\\share\\bait",
            "\\\\?\\C:\\bait",
            "CON",
            "NUL",
            "AUX.workflow.yaml",
            "COM1",
            "con.agent.yaml",
            "..",
            ".",
            "/",
            "",
            " ",
            "good/",
            "good/.",
            "good/..",
            "good//",
            "good.",
            "good ",
            " good",
            "good\t",
            "good\r\nX: y",
            "good\0",
            "good%00",
            "good;x",
            "good?x",
            "good#x",
            "..good",
            "-good",
            "$HOME",
            "$(id)",
            "`id`",
            "|id",
            "good.workflow.yaml/..",
            "file.workflow.yaml",
            "file.agent.yaml",
            "hop.workflow.yaml",
            "loop.workflow.yaml",
            "loop.agent.yaml",
            "workflows/file.workflow.yaml",
            "workflows/hop.workflow.yaml",
            "agents/file.agent.yaml",
            "\u{202e}doog",
            "go\u{200b}od",
            "ｇｏｏｄ",
            "good\u{301}",
        ]
        .map(str::to_owned),
    );
    for length in [65, 255, 256, 4096] {
        names.push("a".repeat(length));
        names.push(format!("{}good", "./".repeat(length)));
        names.push(format!("{}bait", "../".repeat(length)));
    }
    names.sort();
    names.dedup();
    names
}

/// A name as a segment of a path: whatever a client would not send as it is, encoded.
pub(super) fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let write = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(write).collect()
}

/// Whether a request can carry it unencoded.
pub(super) fn is_uri(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#?".contains(&byte);
    !name.is_empty() && name.bytes().all(fine) && name.len() < 2000
}
