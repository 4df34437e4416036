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
fn a_ledger_may_be_on_a_server_and_its_password_is_not_in_the_file() {
    let (_dir, path) = file("name: here\nledger: postgres://ann@db.example/work\n");
    let environment = Environment::load(&path).unwrap();
    let ledger = environment.ledger.as_deref();
    assert_eq!(ledger, Some("postgres://ann@db.example/work"));
    for (address, why) in [
        ("postgres://ann:pw@db.example/work", "PGPASSWORD"),
        ("postgres://db.example/work?password=pw", "PGPASSWORD"),
        ("esdb://ann:pw@db.example:2113", "KTSU_EVENTSTORE_PASSWORD"),
        (
            "mysql://ann@db.example/work",
            "postgres://ROLE@HOST/DATABASE",
        ),
    ] {
        let (_dir, path) = file(&format!("name: here\nledger: {address}\n"));
        let faults = Environment::load(&path).unwrap_err();
        let found = faults.faults.first().unwrap();
        assert_eq!((found.line, found.code.text()), (2, "bad-value"));
        assert!(found.message.contains(why), "{}", found.message);
    }
}

#[test]
fn unknown_keys_and_unquoted_numbers_are_refused_at_their_line() {
    let (_dir, path) = file("nam: x\nvariables:\n  A: 5\nstaet: {}\n");
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
fn whoever_writes_principals_and_names_no_one_is_warned() {
    for value in ["", " []"] {
        let (_dir, path) = file(&format!("name: x\nprincipals:{value}\n"));
        let faults = Environment::load(&path).unwrap_err();
        let told: Vec<_> = faults
            .faults
            .iter()
            .map(|f| (f.line, f.code.text()))
            .collect();
        assert_eq!(told, [(2, "bad-value")], "{value:?}");
    }
}

const PEOPLE: &str = "variables: {ADA: ada-token, BEA: bea-token, ADA_KEY: ada-key-1}
listen: {orchestrator: '0.0.0.0:5050', runtime: 'localhost:5051', gateway: '[::1]:0'}
servers: {desk: {url: 'https://desk.example/mcp'}}
limits: {active_runs: 10, connections: 20, body_bytes: 4096}
retention: {complete_days: 400}
evidence: {signing_key: keys/sign, witness: 'file:heads'}
mcp: {decide: true}
principals:
  - {name: ada, token: {env: ADA}, roles: [operator, viewer], secrets: {KEY: {env: ADA_KEY}}}
  - {name: bea, token: {env: BEA}, roles: [runtime]}
";

fn people(text: &str) -> (Environment, Result<Principals, Faults>) {
    let (_dir, path) = file(text);
    let environment = Environment::load(&path).unwrap_or_else(|faults| panic!("{faults}"));
    let principals = Principals::resolve(Some(&environment), &BTreeMap::new());
    (environment, principals)
}

#[test]
fn what_an_environment_says_of_places_and_bounds_is_read() {
    let (environment, _) = people(PEOPLE);
    let listen = &environment.listen;
    let shown = [listen.orchestrator, listen.runtime, listen.gateway];
    let shown = shown.map(|address| address.unwrap().to_string());
    assert_eq!(shown, ["0.0.0.0:5050", "127.0.0.1:5051", "[::1]:0"]);
    assert_eq!(environment.servers["desk"], "https://desk.example/mcp");
    let limits = &environment.limits;
    let bounds = [limits.active_runs, limits.connections, limits.body_bytes];
    assert_eq!(bounds, [Some(10), Some(20), Some(4096)]);
    assert!(environment.mcp.decide);
    let evidence = &environment.evidence;
    assert_eq!(evidence.witness.as_deref(), Some("file:heads"));
    let key = evidence.signing_key.as_deref().unwrap();
    assert!(key.ends_with("environments/keys/sign"), "{key:?}");
    let kept = environment.retention;
    assert_eq!((kept.complete_days, kept.failed_days), (Some(400), None));
    assert!(environment.warnings.faults.is_empty());
}

#[test]
fn a_token_says_who_asks_and_what_is_theirs() {
    let (_, principals) = people(PEOPLE);
    let principals = principals.unwrap();
    let ada = principals.authenticate(b"ada-token").unwrap();
    assert_eq!(ada.name, "ada");
    assert!(ada.roles.contains(&principals::PrincipalRole::Operator));
    assert_eq!(principals.authenticate(b"bea-token").unwrap().name, "bea");
    for wrong in [&b""[..], b"ada-toke", b"ada-token ", b"ADA-TOKEN"] {
        assert!(principals.authenticate(wrong).is_none());
    }
    assert_eq!(
        principals.secret("ada", "KEY").unwrap().expose(),
        "ada-key-1"
    );
    assert!(principals.secret("bea", "KEY").is_none());
    assert_eq!(principals.secrets().count(), 3);
    let shown = format!("{principals:?}");
    assert!(
        !shown.contains("ada-token") && !shown.contains("ada-key"),
        "{shown}"
    );
}

#[test]
fn the_process_goes_before_the_file_for_tokens_too() {
    let (_dir, path) = file(PEOPLE);
    let environment = Environment::load(&path).unwrap();
    let process = BTreeMap::from([("ADA".to_owned(), "another-token".to_owned())]);
    let principals = Principals::resolve(Some(&environment), &process).unwrap();
    assert!(principals.authenticate(b"ada-token").is_none());
    assert_eq!(
        principals.authenticate(b"another-token").unwrap().name,
        "ada"
    );
}

/// K3, with principals: a secret that each of those who may start runs has is nothing to miss.
#[test]
fn a_secret_needs_no_value_for_everyone_where_each_has_their_own() {
    let (environment, principals) = people(PEOPLE);
    let principals = principals.unwrap();
    let declared = [variable("KEY", true, None)];
    let none = BTreeMap::new();
    let with = |principals: &Principals, common: &[String]| {
        resolve_for(principals, Some(&environment), &declared, &none, common)
    };
    let resolved = with(&principals, &[]).unwrap();
    assert_eq!(resolved.principal_secrets, ["KEY"]);
    assert!(resolved.secrets.is_empty());
    let error = with(&principals, &["KEY".to_owned()]).unwrap_err();
    assert_eq!(error.to_string(), "no value for KEY");
    let text = PEOPLE.replace("roles: [runtime]", "roles: [admin]");
    let (_, all) = people(&text);
    let error = with(&all.unwrap(), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no value for KEY, and principal bea has none of their own"
    );
    let open = [variable("KEY", false, None)];
    let error = resolve_for(&principals, Some(&environment), &open, &none, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no value for KEY",
        "only secrets are anybody's own"
    );
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

#[test]
fn the_mark_of_a_signing_key_is_no_part_of_its_length() {
    let declared = [variable("K", true, None)];
    for (value, is_key) in [
        ("whsec_", false),
        ("whsec_AAAA", false),
        ("whsec_AAAAAA==", true),
    ] {
        let process = BTreeMap::from([("K".to_owned(), value.to_owned())]);
        let resolved = resolve(None, &declared, &process);
        assert_eq!(resolved.is_ok(), is_key, "{value}");
    }
}

#[test]
fn every_environment_of_the_repository_is_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../environments");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let environment = Environment::load(&path).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(environment.warnings.faults, []);
        let value = |reference: &principals::SecretReference| {
            let name = reference.variable.clone();
            (name.clone(), format!("value-of-{name}"))
        };
        let people = &environment.principals;
        let tokens = people.iter().map(|one| value(&one.token));
        let keys = people
            .iter()
            .flat_map(|one| one.secrets.values().map(value));
        let process = tokens.chain(keys).collect();
        let principals = Principals::resolve(Some(&environment), &process);
        principals.unwrap_or_else(|faults| panic!("{faults}"));
        found += 1;
    }
    assert!(found >= 4);
}

const SERVICE: &str = "variables: {TOKEN: token-of-owner}
principals: [{name: owner, token: {env: TOKEN}, roles: [orchestrator]}]
";
const TLS: &str =
    "tls: {certificate: own.pem, key: keys/own.key, authority: ca.pem, clients: true}\n";

#[test]
fn certificates_are_looked_for_beside_the_file() {
    let (dir, path) = file(TLS);
    let tls = Environment::load(&path).unwrap().tls;
    let folder = dir.path().join("environments");
    let own = tls.identity.unwrap();
    assert_eq!(own.certificate, folder.join("own.pem"));
    assert_eq!(own.key, folder.join("keys/own.key"));
    assert_eq!(tls.authority, Some(folder.join("ca.pem")));
    assert!(tls.asks_clients);
}

#[test]
fn half_a_certificate_and_callers_without_an_authority_are_faults() {
    for (tls, words) in [
        (
            "{certificate: own.pem}",
            "certificate and key belong together",
        ),
        ("{key: own.key}", "certificate and key belong together"),
        ("{certificate: '', key: own.key}", "certificate is empty"),
        ("{clients: true}", "clients needs authority"),
    ] {
        let (_dir, path) = file(&format!("name: x\ntls: {tls}\n"));
        let faults = Environment::load(&path).unwrap_err();
        let found = faults
            .faults
            .iter()
            .map(|fault| (fault.line, &fault.message));
        let found: Vec<_> = found.collect();
        assert!(
            found
                .iter()
                .any(|(line, said)| *line == 2 && said.contains(words)),
            "{tls}: {found:?}"
        );
    }
}

#[test]
fn a_runtime_and_a_gateway_are_open_to_others_only_with_principals_and_a_certificate() {
    for service in ["orchestrator", "runtime", "gateway"] {
        let listen = format!("listen: {{{service}: '0.0.0.0:5055'}}\n");
        let load = |parts: &[&str]| {
            let (_dir, path) = file(&[&[listen.as_str()], parts].concat().concat());
            Environment::load(&path).map_err(|faults| faults.faults[0].message.clone())
        };
        assert!(load(&[SERVICE, TLS]).is_ok());
        let refused = load(&[TLS]).unwrap_err();
        assert!(refused.contains("not authenticated"), "{refused}");
        match load(&[SERVICE]) {
            Ok(_) => assert_eq!(service, "orchestrator"),
            Err(why) => assert!(why.contains("contains secrets"), "{why}"),
        }
    }
}

#[test]
fn a_service_looks_up_the_tokens_of_services_alone() {
    let (_dir, path) = file(&format!("{SERVICE}  \n# people\n").replace(
        "roles: [orchestrator]}]",
        "roles: [orchestrator]}, {name: ada, token: {env: ADA}, roles: [admin]}]",
    ));
    let environment = Environment::load(&path).unwrap();
    let process = BTreeMap::new();
    assert!(Principals::resolve(Some(&environment), &process).is_err());
    let services = Principals::resolve_services(Some(&environment), &process).unwrap();
    assert!(services.authenticate(b"token-of-owner").is_some());
    let shown = services.token_of(principals::PrincipalRole::Orchestrator);
    assert_eq!(shown.unwrap().expose(), "token-of-owner");
    assert!(
        services
            .token_of(principals::PrincipalRole::Runtime)
            .is_none()
    );
}
