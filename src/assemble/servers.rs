//! Lists the tools of a kit's servers outside any run: for `ktsu lock --tools` and
//! `ktsu validate --tools`.

mod server_query;

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderName;

use self::server_query::{ServerQuery, resolve_variables, server_query};
use super::network::policy;
use ktsu_codes::nearest;
use ktsu_egress as egress;
use ktsu_environment::{Environment, Principals};
use ktsu_kit::Kit;
use ktsu_kit::server::KitServer;
use ktsu_ledger::id::covers;
use ktsu_orchestrator::BuiltinServer;
use ktsu_secret::Redactor;
use ktsu_tools::{self as tools, ExcludedTool};

pub use self::server_query::ListToolsError;

/// The digests of tools, by name.
pub type ToolDigests = BTreeMap<String, String>;

/// The tools that a server offers to the agents of a kit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedTools {
    /// The tools that an agent may call.
    pub digests: ToolDigests,
    /// Those that an agent may call by its allowlist, and that are not offered.
    pub left_out: Vec<ExcludedTool>,
    /// Entries of allowlists, of the server or of agents, that cover no tool of the server.
    pub unmatched: Vec<UnmatchedEntry>,
}

/// An entry of an allowlist that covers no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedEntry {
    /// As it is written.
    pub entry: String,
    /// The tool that may be meant.
    pub near: Option<String>,
}

/// Lists the tools of every tool server of a kit, by the path of the server, or says why that
/// failed. Built-in servers are skipped. Of the environment, only the values that the servers
/// receive are needed.
///
/// # Errors
/// What is wrong with the environment, in words.
pub async fn tools(
    kit: &Kit,
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Result<Vec<(String, Result<ListedTools, ListToolsError>)>, String> {
    let client = egress::Client::new(&policy(environment)).map_err(|error| error.to_string())?;
    // There is no principal here; personal secrets are for runs only.
    let principals = Principals::resolve(environment, process).unwrap_or_default();
    let known = resolve_variables(kit, &principals, environment, process);
    let secrets = known.values().flat_map(|one| one.values.secrets.values());
    let redactor = Redactor::new(secrets.chain(principals.secrets()));
    let mut found = Vec::new();
    for (path, server) in kit.servers.iter().filter(|(_, one)| !one.url.is_empty()) {
        let listed = match server_query(kit, path, server, environment, &known) {
            Ok(asked) => list(&client, &asked).await.map_err(ListToolsError::Failed),
            Err(why) => Err(why),
        };
        let listed = listed.map(|mut listed| {
            let left_out = listed.left_out.iter().map(|one| &one.tool);
            let tools: Vec<&str> = listed
                .digests
                .keys()
                .chain(left_out)
                .map(String::as_str)
                .collect();
            let unmatched = unmatched(kit, path, server, &tools);
            listed.unmatched = unmatched;
            let permitted = |tool: &str| permitted(kit, path, server, tool);
            listed.digests.retain(|tool, _| permitted(tool));
            listed.left_out.retain(|one| permitted(&one.tool));
            listed
        });
        let listed = listed.map_err(|why| why.redacted(&redactor));
        found.push((path.clone(), listed));
    }
    Ok(found)
}

/// The entries of allowlists that cover no tool of a built-in server, by the path of the server.
pub fn unmatched_of_builtin(kit: &Kit) -> Vec<(String, Vec<UnmatchedEntry>)> {
    let builtin = kit.servers.iter().filter_map(|(path, server)| {
        let name = path.strip_prefix("ktsu/")?;
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let tools = BuiltinServer::from_name(name)?.tool_names();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        Some((path.clone(), unmatched(kit, path, server, &tools)))
    });
    builtin.collect()
}

/// The tools a server offers.
async fn list(client: &egress::Client, asked: &ServerQuery) -> Result<ListedTools, String> {
    let auth = match &asked.auth {
        None => None,
        Some((header, value)) => {
            let name = HeaderName::from_bytes(header.as_bytes());
            let name = name.map_err(|_| format!("{header:?} is not the name of a header"))?;
            Some((name, value.clone()))
        }
    };
    let server = tools::McpServer {
        name: asked.name.clone(),
        url: asked.url.clone(),
        builtin: None,
        auth,
        params: asked.params.clone(),
    };
    let session = tools::McpClient::new(client.clone()).open(&server).await;
    let session = session.map_err(|error| error.to_string())?;
    let offered = session.tools();
    let digests = offered
        .iter()
        .map(|tool| (tool.name.clone(), tool.digest.clone()));
    let listed = ListedTools {
        digests: digests.collect(),
        left_out: session.excluded_tools().to_vec(),
        unmatched: Vec::new(),
    };
    session.close().await;
    Ok(listed)
}

/// The entries of the server's list, and of those of agents that use it, that cover none of its
/// tools. One that covers a tool that is not offered has been answered with the reason.
fn unmatched(kit: &Kit, path: &str, server: &KitServer, tools: &[&str]) -> Vec<UnmatchedEntry> {
    let uses = kit.uses.values().flatten().filter(|one| one.server == path);
    let of_agents = uses.flat_map(|one| one.allowlist.patterns());
    let entries: BTreeSet<&str> = server.allowlist.patterns().chain(of_agents).collect();
    let entries = entries.into_iter().filter(|entry| *entry != "*");
    let matching = |entry: &&str| tools.iter().any(|tool| covers(entry, tool));
    let unmatched = entries.filter(|entry| !matching(entry));
    unmatched
        .map(|entry| UnmatchedEntry {
            entry: entry.to_owned(),
            near: nearest(entry.trim_end_matches('*'), tools.iter().copied()).map(str::to_owned),
        })
        .collect()
}

/// Returns `true` if an agent of the kit may call a tool; for a server that no agent uses, its own
/// allowlist decides.
fn permitted(kit: &Kit, path: &str, server: &KitServer, tool: &str) -> bool {
    let mut uses = kit.uses.values().flatten().filter(|one| one.server == path);
    match uses.next() {
        None => server.allowlist.permits(tool),
        Some(first) => first.allowlist.permits(tool) || uses.any(|one| one.allowlist.permits(tool)),
    }
}

/// The differences between the tools a server was locked with and those it offers, in words.
pub fn difference(locked: &ToolDigests, offered: &ToolDigests) -> Option<String> {
    let names: BTreeSet<&String> = locked.keys().chain(offered.keys()).collect();
    let words = names
        .into_iter()
        .filter_map(|name| match (locked.get(name), offered.get(name)) {
            (Some(was), Some(is)) if was == is => None,
            (Some(_), Some(_)) => Some(format!("{name} changed")),
            (Some(_), None) => Some(format!("{name} gone")),
            (None, _) => Some(format!("{name} added")),
        });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ktsu_kit as kit;

    const FILES: [(&str, &str); 6] = [
        (
            "workflows/w.workflow.yaml",
            "kind: workflow\nname: w\nversion: 1.0.0\nenv: [{name: KEY, secret: true}, {name: HOOK}]\nparams: {schema: {type: object, properties: {who: {type: string, default: x}}}}\npipeline:\n  - {id: s, agent: agents/a.agent.yaml, params: {k: '{{ env.KEY }}', who: '{{ params.who }}'}}\n",
        ),
        (
            "agents/a.agent.yaml",
            "name: a\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\nparams: {schema: {type: object, required: [k, who], properties: {k: {type: string, secret: true}, who: {type: string}, zone: {type: string, default: z}}}}\nservers:\n  - {name: crm, path: ../servers/crm.server.yaml, params: {key: '{{ params.k }}', who: '{{ params.who }}', zone: '{{ params.zone }}'}, access: {allowlist: [crm-*]}}\n  - {name: ktsu/kv}\n",
        ),
        (
            "agents/b.agent.yaml",
            "name: b\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\nservers: [{name: mail, access: {allowlist: [read]}}]\n",
        ),
        (
            "servers/crm.server.yaml",
            "name: crm\nversion: 1.0.0\nurl: http://crm\nparams: {key: {secret: true}, who: {}, zone: {}}\nauth: {secret: '{{ params.key }}'}\n",
        ),
        (
            "servers/lone.server.yaml",
            "name: lone\nversion: 1.0.0\nurl: http://lone\nparams: {key: {secret: true}}\nauth: {secret: '{{ params.key }}'}\n",
        ),
        (
            "servers.yaml",
            "servers: [{name: mail, version: 1.0.0, url: 'http://mail'}]\n",
        ),
    ];

    pub(super) fn load() -> (tempfile::TempDir, Kit) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kit = kit::load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
        (dir, kit)
    }

    #[test]
    fn what_no_agent_may_call_is_not_locked() {
        let (_dir, kit) = load();
        for (path, tool, is) in [
            ("servers/crm.server.yaml", "crm-read", true),
            ("servers/crm.server.yaml", "mail-send", false),
            ("servers.yaml#mail", "read", true),
            ("servers.yaml#mail", "send", false),
            ("servers/lone.server.yaml", "any", true),
        ] {
            assert_eq!(
                permitted(&kit, path, &kit.servers[path], tool),
                is,
                "{path} {tool}"
            );
        }
    }

    #[test]
    fn entries_that_cover_no_tool_are_found_with_the_tool_that_may_be_meant() {
        let (_dir, kit) = load();
        let unmatched = |path: &str, tools: &[&str]| {
            let found = super::unmatched(&kit, path, &kit.servers[path], tools);
            let pairs = found.into_iter().map(|one| (one.entry, one.near));
            pairs.collect::<Vec<_>>()
        };
        let (crm, mail) = ("servers/crm.server.yaml", "servers.yaml#mail");
        let entry =
            |entry: &str, near: Option<&str>| vec![(entry.to_owned(), near.map(str::to_owned))];
        assert_eq!(unmatched(crm, &["crm-read", "other"]), []);
        assert_eq!(unmatched(crm, &["mail-send"]), entry("crm-*", None));
        assert_eq!(unmatched(mail, &["raed", "x"]), entry("read", Some("raed")));
        // Every tool may be called, and there is none.
        assert_eq!(unmatched("servers/lone.server.yaml", &[]), []);
    }

    #[tokio::test]
    async fn servers_that_come_with_ktsu_are_not_asked() {
        let (_dir, kit) = load();
        let found = tools(&kit, None, &BTreeMap::new()).await.unwrap();
        let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
        let own = [
            "servers.yaml#mail",
            "servers/crm.server.yaml",
            "servers/lone.server.yaml",
        ];
        assert_eq!(paths, own);
        assert!(kit.servers.contains_key("ktsu/kv@1.0.0"));
    }

    #[test]
    fn what_differs_is_named() {
        let digests = |pairs: &[(&str, &str)]| -> ToolDigests {
            let pairs = pairs.iter();
            pairs
                .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
                .collect()
        };
        let was = digests(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let is = digests(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let words = difference(&was, &is);
        assert_eq!(words.as_deref(), Some("b changed, c gone, d added"));
        assert_eq!(difference(&was, &was), None);
    }
}
