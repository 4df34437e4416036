//! A thousand names that resemble the name of a tool: none of them passes for it, and each passes
//! if the allowlist contains exactly that name (seed 000, invariant 5).

use super::*;

#[path = "../../../../tests/support/lookalikes.rs"]
mod lookalikes;

/// One server with this allowlist, that offers all of these.
fn catalogue(allowlist: &[&str], offered: &[&str]) -> Catalogue {
    let server = ToolServer {
        name: "s".to_owned(),
        allowlist: allowlist.iter().map(|&entry| entry.to_owned()).collect(),
        ..ToolServer::default()
    };
    let offered = offered.iter().map(|&name| {
        Arc::new(ServerTool {
            name: name.to_owned(),
            input_schema: serde_json::json!({"type": "object"}),
            ..ServerTool::default()
        })
    });
    let mut catalogue = Catalogue::of(std::slice::from_ref(&server));
    let offered: Vec<Arc<ServerTool>> = offered.collect();
    catalogue.add_server(&server, &offered).unwrap();
    catalogue
}

fn verdict(catalogue: &Catalogue, name: &str) -> CallVerdict {
    let call = ToolCall {
        id: "c".to_owned(),
        name: name.to_owned(),
        arguments: serde_json::json!({}),
    };
    catalogue.check_call(&call, false)
}

fn free(name: &str) -> CallVerdict {
    CallVerdict::Allowed(ToolTarget {
        server: "s".to_owned(),
        tool: name.to_owned(),
    })
}

#[test]
fn no_name_gets_through_for_one_it_only_looks_like() {
    let all = lookalikes::all();
    assert!(all.len() >= 1_000, "{}", all.len());
    for (name, other) in &all {
        let exact = catalogue(&[name], &[name, other]);
        assert_eq!(
            verdict(&exact, other),
            CallVerdict::NotPermitted,
            "{other:?}"
        );
        assert_eq!(verdict(&exact, name), free(name));
    }
}

#[test]
fn the_same_names_get_through_where_the_allowlist_says_them() {
    for (name, other) in &lookalikes::all() {
        let open = catalogue(&["*"], &[name, other]);
        assert_eq!(verdict(&open, other), free(other), "{other:?}");
        if !other.ends_with('*') {
            let exact = catalogue(&[other], &[name, other]);
            assert_eq!(verdict(&exact, other), free(other), "{other:?}");
            assert_eq!(
                verdict(&exact, name),
                CallVerdict::NotPermitted,
                "{other:?}"
            );
        }
    }
}

#[test]
fn a_star_means_an_ending_and_nothing_else() {
    for (_, entry) in &lookalikes::all() {
        let pattern = catalogue(&[entry], &lookalikes::NAMES);
        for name in lookalikes::NAMES {
            let permitted = match entry.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == entry,
            };
            let expected = if permitted {
                free(name)
            } else {
                CallVerdict::NotPermitted
            };
            assert_eq!(verdict(&pattern, name), expected, "{entry:?} {name}");
        }
    }
}
