use super::*;
use crate::Gateway;
use ktsu_egress as egress;
use ktsu_secret as secret;

const KEYED: &str = "env:
  - {name: KEY, secret: true}
  - {name: BASE, default: 'http://127.0.0.1:9/v1'}
providers:
  - name: real
    type: openai
    config: {base_url: '{{ env.BASE }}', api_key: '{{ env.KEY }}'}
model_groups:
  - {name: triage, models: [real/gpt-4o-mini]}
";

struct Folder(tempfile::TempDir);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = folder.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self) -> Result<Config, Faults> {
        Config::load_in(self.0.path(), Path::new("gateway.yaml"), None)
    }

    fn gateway(&self, process: &[(&str, &str)]) -> Result<Gateway, Faults> {
        let path = self.path("environments/here.env.yaml");
        let environment = path.is_file().then(|| Environment::load(&path).unwrap());
        let process = process
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        let client = egress::Client::new(&egress::EgressPolicy::default()).unwrap();
        let path = self.path("gateway.yaml");
        Gateway::load(&path, environment.as_ref(), &process.collect(), &client)
    }
}

fn told<T>(result: Result<T, Faults>) -> Vec<(usize, &'static str, String)> {
    let faults = result.err().map(|faults| faults.faults).unwrap_or_default();
    let one = |fault: Fault| (fault.line, fault.code.text(), fault.message);
    faults.into_iter().map(one).collect()
}

fn config(text: &str) -> Result<Config, Faults> {
    Folder::of(&[("gateway.yaml", text)]).config()
}

#[test]
fn groups_and_their_models_are_read_without_any_key() {
    let config = config(KEYED).unwrap();
    assert_eq!(config.group_names().collect::<Vec<_>>(), ["triage"]);
    let model = &config.groups()[0].models[0];
    assert_eq!(
        (model.provider.as_str(), model.id.as_str()),
        ("real", "gpt-4o-mini")
    );
}

#[test]
fn every_fault_is_reported_at_once_and_at_its_place() {
    let text = "env: [{name: KEY, secert: true}]
providers:
  - {name: a, type: anthropic, config: {}}
  - {name: b, type: opanai, config: {}}
  - {name: c, type: openai, config: {api_key: '{{ env.NOPE }}', base_url: '{{ params.x }}', retries: 1}}
  - {name: c, type: openai, config: {}}
  - {name: d/e, type: openai, config: {}}
  - {name: f, type: openai, config: {base_url: 'http://x'}}
model_groups:
  - {name: g, models: [cc/m, nomodel], strategy: fastest}
  - {name: g, models: []}
  - {name: h, models: [c/m], strategy: fallback, pricing: [{model: mm, input_per_million: 1, output_per_million: -1}]}
routes: []
";
    let faults = told(config(text));
    let short: Vec<_> = faults
        .iter()
        .map(|(line, code, _)| (*line, *code))
        .collect();
    let wanted = [
        (1, "unknown-key"),
        (3, "missing-key"),
        (4, "bad-value"),
        (5, "bad-template"),
        (5, "unknown-key"),
        (6, "duplicate-name"),
        (7, "bad-value"),
        (8, "missing-key"),
        (10, "unknown-provider"),
        (10, "bad-value"),
        (10, "bad-value"),
        (11, "duplicate-name"),
        (11, "bad-value"),
        (12, "bad-value"),
        (12, "bad-value"),
        (13, "unknown-key"),
    ];
    assert_eq!(short, wanted, "{faults:#?}");
    let all = format!("{faults:?}");
    for words in ["unknown provider type", "there is no strategy", "mm"] {
        assert!(all.contains(words), "{words}: {all}");
    }
}

#[test]
fn a_variable_must_be_declared_and_have_a_value() {
    let undeclared = KEYED.replace("name: KEY", "name: KEYS");
    let faults = told(config(&undeclared));
    assert_eq!(
        faults,
        [(
            7,
            "undeclared-variable",
            "env.KEY is not declared".to_owned()
        )]
    );

    let folder = Folder::of(&[("gateway.yaml", KEYED)]);
    let faults = told(folder.gateway(&[]));
    assert_eq!(
        faults,
        [(
            2,
            "no-value",
            "the variable \"KEY\" has no value".to_owned()
        )]
    );
    let faults = told(folder.gateway(&[("KEY", "short")]));
    assert_eq!((faults[0].0, faults[0].1), (2, "short-secret"));
    assert!(folder.gateway(&[("KEY", "long enough")]).is_ok());
    // Set and empty counts as set: there is a value, and it is no URL.
    let faults = told(folder.gateway(&[("KEY", "long enough"), ("BASE", "")]));
    assert_eq!((faults[0].0, faults[0].1), (7, "bad-url"));
}

#[test]
fn a_key_is_neither_empty_nor_short_wherever_it_comes_from() {
    for (key, code) in [("''", "bad-value"), ("abc", "short-secret")] {
        let text = KEYED
            .replace("'{{ env.KEY }}'", key)
            .replace("  - {name: KEY, secret: true}\n", "");
        let faults = told(Folder::of(&[("gateway.yaml", &text)]).gateway(&[]));
        assert_eq!((faults[0].0, faults[0].1), (6, code), "{faults:?}");
    }
}

#[test]
fn an_environment_replaces_a_provider_by_name_and_its_key_is_not_needed_then() {
    let environment = "providers:
  - {name: real, type: scripted, config: {rules: scripts/r.yaml}}
  - {name: of-another-kit, type: openai, config: {base_url: 'x', api_key: '{{ env.OTHER }}'}}
";
    let folder = Folder::of(&[
        ("gateway.yaml", KEYED),
        ("environments/here.env.yaml", environment),
        ("environments/scripts/r.yaml", "rules: [{text: hi}]"),
    ]);
    let gateway = folder.gateway(&[]).unwrap();
    assert_eq!(gateway.group_names().collect::<Vec<_>>(), ["triage"]);
    // A variable that nothing replaced still needs a value.
    let text = KEYED.replace("env:\n", "env:\n  - {name: LOST}\n");
    let folder = Folder::of(&[
        ("gateway.yaml", &text),
        ("environments/here.env.yaml", environment),
        ("environments/scripts/r.yaml", "rules: [{text: hi}]"),
    ]);
    assert_eq!(
        told(folder.gateway(&[]))[0].2,
        "the variable \"LOST\" has no value"
    );
}

#[test]
fn a_fault_in_the_environment_points_into_the_environment() {
    let environment =
        "name: here\nproviders:\n  - {name: real, type: scripted, config: {rule: r.yaml}}\n";
    let folder = Folder::of(&[
        ("gateway.yaml", KEYED),
        ("environments/here.env.yaml", environment),
    ]);
    let faults = folder
        .gateway(&[("KEY", "long enough")])
        .map(drop)
        .unwrap_err();
    assert!(
        faults.faults.iter().all(|fault| fault.line == 3),
        "{faults}"
    );
    assert!(faults.faults[0].file.ends_with("here.env.yaml"), "{faults}");
    // Keys are shown, values are not: any of them may be secret.
    assert!(
        faults.to_string().contains("config: {rule: ********"),
        "{faults}"
    );
}

#[test]
fn the_environment_gives_values_that_the_process_may_replace() {
    let environment = "variables: {KEY: from-the-file, BASE: 'not a url'}\n";
    let folder = Folder::of(&[
        ("gateway.yaml", KEYED),
        ("environments/here.env.yaml", environment),
    ]);
    assert_eq!(told(folder.gateway(&[]))[0].1, "bad-url");
    assert!(
        folder
            .gateway(&[("BASE", "https://example.com/v1")])
            .is_ok()
    );
}

#[test]
fn own_prices_go_by_the_bare_id_under_either_name() {
    let text = "providers: [{name: s, type: scripted, config: {rules: r.yaml}}]
model_groups:
  - name: g
    models: [s/a, s/b]
    pricing:
      - {model: a, input_per_million: 0.15, output_per_million: 3}
      - {model: b, input_per_million_usd: 0.000001, output_per_million_usd: 0}
";
    let folder = Folder::of(&[("gateway.yaml", text), ("r.yaml", "rules: []")]);
    let config = folder.config().unwrap();
    let price = |model| {
        config.groups()[0]
            .prices
            .of(model)
            .map(|price| (price.input, price.output))
    };
    assert_eq!(price("a"), Some((150_000, 3_000_000)));
    assert_eq!(price("b"), Some((1, 0)));
}

#[test]
fn no_fault_repeats_a_key() {
    let process = [
        ("KEY", "very-secret-key"),
        ("BASE", "nonsense very-secret-key"),
    ];
    let folder = Folder::of(&[("gateway.yaml", KEYED)]);
    let faults = folder.gateway(&process).map(drop).unwrap_err();
    assert!(!faults.to_string().contains("very-secret-key"), "{faults}");
    assert_eq!(secret::MIN_LENGTH, 6);
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn no_text_makes_it_panic(text in "[a-c:{}\\[\\]&*'\"#,\n\t -]{0,60}", keys in proptest::bool::ANY) {
        let text = if keys { format!("model_groups: {text}\nproviders: {text}\nenv: {text}") } else { text };
        let _ = config(&text);
    }
}

#[test]
fn a_group_says_whom_it_asks_how_often_and_how_long() {
    let group = |more: &str| {
        let text = KEYED.replace(
            "[real/gpt-4o-mini]}",
            &format!("[real/gpt-4o-mini], {more}}}"),
        );
        config(&text).map(|config| config.groups()[0].clone())
    };
    let plain = group("strategy: round_robin").unwrap();
    assert_eq!(
        (plain.strategy, plain.deadline),
        (Strategy::RoundRobin, None)
    );
    assert_eq!(
        plain.retry, None,
        "nothing is tried again unless the file says so"
    );
    let own = group(
        "strategy: fallback, deadline: 1m30s, retry: {attempts: 3, backoff: 50ms, on: [timeout, rate_limited, timeout]}",
    );
    let own = own.unwrap();
    assert_eq!(own.deadline, Some(std::time::Duration::from_secs(90)));
    assert_eq!(own.strategy, Strategy::Fallback);
    assert_eq!(
        format!("{:?}", own.retry.unwrap()),
        "RetryPolicy { attempts: 3, backoff: 50ms, on: [RateLimited, Timeout] }"
    );
    let usual = group("strategy: cost_optimized, retry: {attempts: 2}").unwrap();
    assert_eq!(
        format!("{:?}", usual.retry.unwrap()),
        "RetryPolicy { attempts: 2, backoff: 1s, on: [RateLimited, ServerError, Timeout, Unreachable] }"
    );
    for (more, words) in [
        ("strategy: fallbck", "there is no strategy \"fallbck\""),
        ("deadline: 5", "deadline"),
        ("deadline: 0s", "must be between 1ms"),
        ("retry: {attempts: 1}", "retry.attempts"),
        ("retry: {attempts: 2, on: [always]}", "retry.on"),
        ("retry: {backoff: 1s}", "attempts"),
    ] {
        let faults = told(group(more));
        assert_eq!(faults.len(), 1, "{more}: {faults:?}");
        assert_eq!(faults[0].0, 9, "{more}");
        assert!(faults[0].2.contains(words), "{more}: {faults:?}");
    }
}

#[test]
fn a_provider_says_how_much_it_is_asked() {
    let provider = |more: &str| {
        let text = KEYED.replace(
            "    type: openai\n",
            &format!("    type: openai\n    rate_limit: {more}\n"),
        );
        config(&text).map(|config| config.providers()[0].limit)
    };
    let limit = provider("{requests_per_minute: 60, concurrent: 4}").unwrap();
    assert_eq!((limit.per_minute, limit.concurrent), (Some(60), Some(4)));
    assert_eq!(provider("{concurrent: 1}").unwrap().per_minute, None);
    for more in [
        "{}",
        "{concurrent: 0}",
        "{requests_per_minute: 1.5}",
        "{per_minute: 1, concurrent: 2}",
        "5",
    ] {
        let faults = told(provider(more));
        assert_eq!(faults.len(), 1, "{more}: {faults:?}");
        assert_eq!(faults[0].0, 7, "{more}");
    }
}

#[test]
fn anthropic_needs_a_key_and_has_an_address_of_its_own() {
    let text = KEYED
        .replace("type: openai", "type: anthropic")
        .replace("base_url: '{{ env.BASE }}', ", "");
    let folder = Folder::of(&[("gateway.yaml", &text)]);
    assert!(folder.gateway(&[("KEY", "long enough")]).is_ok());
    let faults = told(folder.gateway(&[]));
    assert_eq!((faults[0].0, faults[0].1), (2, "no-value"));
    let bad = KEYED.replace("type: openai", "type: anthropic");
    let bad = Folder::of(&[("gateway.yaml", &bad)]);
    let faults = told(bad.gateway(&[("KEY", "long enough"), ("BASE", "ftp://x")]));
    assert_eq!((faults[0].0, faults[0].1), (7, "bad-url"));
    let keyless = text.replace("api_key: '{{ env.KEY }}'", "timeout_s: 5");
    assert_eq!(told(config(&keyless))[0].1, "missing-key");
}

#[test]
fn cached_input_has_a_price_of_its_own_where_one_is_given() {
    let price = |more: &str| {
        let pricing = format!(
            "pricing: [{{model: gpt-4o-mini, input_per_million: 3, output_per_million: 15{more}}}]"
        );
        let text = KEYED.replace(
            "[real/gpt-4o-mini]}",
            &format!("[real/gpt-4o-mini], {pricing}}}"),
        );
        config(&text).map(|config| config.groups()[0].prices.of("gpt-4o-mini").unwrap().cached)
    };
    assert_eq!(price("").unwrap(), None);
    assert_eq!(
        price(", cached_input_per_million_usd: 0.3").unwrap(),
        Some(300_000)
    );
    assert_eq!(price(", cached_input_per_million: 0").unwrap(), Some(0));
    assert_eq!(told(price(", cached_input_per_million: x")).len(), 1);
}
