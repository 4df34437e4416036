use super::*;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("environments");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("local.env.yaml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn variable(name: &str, secret: bool, default: Option<&str>) -> Variable {
    Variable {
        name: name.into(),
        secret,
        default: default.map(str::to_owned),
    }
}

const FULL: &str = "name: here
variables: {A: file, B: '2', K: s3cret!}
providers: [{name: fake, type: openai}]
ledger: .ktsu/x.db
receiver: {variable: HOOK}
egress: {allow: [10.0.0.1]}
";

#[test]
fn every_key_is_read() {
    let (_dir, path) = file(FULL);
    let environment = Environment::load(&path).unwrap();
    assert_eq!(environment.name, "here");
    assert_eq!(environment.variables["B"], "2");
    assert_eq!(environment.providers[0].to_value()["name"], "fake");
    assert_eq!(environment.receiver.as_deref(), Some("HOOK"));
    assert_eq!(environment.egress_allow, ["10.0.0.1"]);
    assert_eq!(environment.ledger.as_deref(), Some(".ktsu/x.db"));
}

#[test]
fn unknown_keys_and_unquoted_numbers_are_refused_at_their_line() {
    let (_dir, path) = file("nam: x\nvariables:\n  A: 5\nstate: {}\n");
    let faults = Environment::load(&path).unwrap_err();
    let told: Vec<_> = faults
        .faults
        .iter()
        .map(|f| (f.line, f.code.text()))
        .collect();
    assert_eq!(
        told,
        [(1, "unknown-key"), (3, "wrong-type"), (4, "unknown-key")]
    );
}

#[test]
fn principals_are_refused_at_their_line() {
    for value in ["", " []", " [{id: ops}]", "\n  - id: ops"] {
        let (_dir, path) = file(&format!("name: x\nprincipals:{value}\n"));
        let faults = Environment::load(&path).unwrap_err();
        let told: Vec<_> = faults
            .faults
            .iter()
            .map(|f| (f.line, f.code.text()))
            .collect();
        assert_eq!(told, [(2, "principals-not-built")], "{value:?}");
    }
}

#[test]
fn the_nearest_local_file_is_found_from_the_kit_upward() {
    let (dir, path) = file("name: x\n");
    let kit = dir.path().join("kits/demo");
    std::fs::create_dir_all(&kit).unwrap();
    assert_eq!(Environment::find(&kit), Some(path.canonicalize().unwrap()));
}

#[test]
fn the_process_goes_before_the_file_and_the_file_before_the_default() {
    // K3, C3
    let (_dir, path) = file(FULL);
    let environment = Environment::load(&path).unwrap();
    let declared = [
        variable("A", false, Some("default")),
        variable("B", false, Some("default")),
        variable("C", false, Some("default")),
        variable("K", true, None),
    ];
    let process = BTreeMap::from([("A".to_owned(), String::new())]);
    let resolved = resolve(Some(&environment), &declared, &process).unwrap();
    let values: Vec<_> = resolved.values.values().map(String::as_str).collect();
    assert_eq!(values, ["", "2", "default"]);
    assert_eq!(resolved.secrets["K"].expose(), "s3cret!");
    assert!(!format!("{resolved:?}").contains("s3cret"));
}

#[test]
fn everything_missing_or_too_short_is_named_at_once() {
    let declared = [
        variable("A", false, None),
        variable("B", true, None),
        variable("C", true, Some("short")),
    ];
    let error = resolve(None, &declared, &BTreeMap::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no value for A, B; secrets need at least 6 characters: C"
    );
}
