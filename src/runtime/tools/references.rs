//! A session with a server for which references stand for values: its calls have the values, and its
//! results the references, so that no report holds a value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ktsu_contract::references::{resolved, without_value};
use serde_json::{Map, Value};

use super::{BoxFuture, ToolCallResult, ToolError, ToolList, ToolSession};

/// The session.
struct ReferencedSession {
    session: Arc<dyn ToolSession>,
    /// References, and what each stands for.
    references: BTreeMap<String, String>,
}

/// A session, with references where there are any.
pub(super) fn referenced(
    session: Arc<dyn ToolSession>,
    references: &BTreeMap<String, String>,
) -> Arc<dyn ToolSession> {
    match references.is_empty() {
        true => session,
        false => Arc::new(ReferencedSession {
            session,
            references: references.clone(),
        }),
    }
}

impl ToolSession for ReferencedSession {
    fn tools(&self) -> ToolList {
        self.described(&self.session.tools())
    }

    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>> {
        Box::pin(async move { Ok(self.described(&self.session.renew().await?)) })
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<ToolCallResult, ToolError>> {
        Box::pin(async move {
            let arguments = arguments.iter();
            let arguments: Map<String, Value> = arguments
                .map(|(name, value)| (name.clone(), self.resolved(value)))
                .collect();
            let called = self.session.call(tool, &arguments, key, limit).await;
            called
                .map(|result| ToolCallResult {
                    content: result.content.iter().map(|it| self.referring(it)).collect(),
                    structured: result.structured.as_ref().map(|it| self.referring(it)),
                    ..result
                })
                .map_err(|error| ToolError {
                    message: self.without_values(&error.message),
                    ..error
                })
        })
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let session = Arc::clone(&self.session);
        // The session is closed by its last holder.
        drop(self);
        session.close()
    }
}

impl ReferencedSession {
    fn resolved(&self, value: &Value) -> Value {
        mapped(value, &|text| resolved(text, &self.references))
    }

    /// The tools that the server offers, with references in their descriptions and schemas.
    fn described(&self, tools: &ToolList) -> ToolList {
        let tools = tools.iter().map(|tool| {
            let description = self.without_values(&tool.description);
            let schema = self.referring(&tool.input_schema);
            match description == tool.description && schema == tool.input_schema {
                true => Arc::clone(tool),
                false => Arc::new(tool.described(description, schema)),
            }
        });
        tools.collect()
    }

    fn referring(&self, value: &Value) -> Value {
        mapped(value, &|text| self.without_values(text))
    }

    fn without_values(&self, text: &str) -> String {
        let references = self.references.iter();
        references.fold(text.to_owned(), |text, (reference, value)| {
            without_value(&text, value, reference)
        })
    }
}

/// A value with other texts, of keys too. Arguments and results come from JSON whose depth is bounded.
fn mapped(value: &Value, text: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(one) => Value::String(text(one)),
        Value::Array(items) => items.iter().map(|item| mapped(item, text)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, member)| (text(name), mapped(member, text)));
            Value::Object(members.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::{ServerTool, ToolErrorCode};

    /// Answers with what it was given, and fails where there is nothing.
    struct Echo;

    impl ToolSession for Echo {
        fn tools(&self) -> ToolList {
            let tool = |name: &str, description: &str| ServerTool {
                name: name.to_owned(),
                description: description.to_owned(),
                input_schema: json!({"default": description}),
                digest: "its own".to_owned(),
            };
            [
                tool("read", "Reads below /tmp/w-1/."),
                tool("say", "Says it."),
            ]
            .map(Arc::new)
            .into()
        }

        fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>> {
            Box::pin(async { Ok(Vec::new().into()) })
        }

        fn call<'a>(
            &'a self,
            _: &'a str,
            arguments: &'a Map<String, Value>,
            _: &'a str,
            _: Duration,
        ) -> BoxFuture<'a, Result<ToolCallResult, ToolError>> {
            Box::pin(async move {
                let Some(path) = arguments.get("path").and_then(Value::as_str) else {
                    let words = "no such file: /tmp/w-1/b";
                    return Err(ToolError::sent(ToolErrorCode::Closed, words));
                };
                assert_eq!(path, "/tmp/w-1/a");
                Ok(ToolCallResult {
                    content: vec![json!({"type": "text", "text": format!("read {path}")})],
                    structured: Some(json!({path: [path, 1]})),
                    is_error: false,
                    duration_ms: 1,
                })
            })
        }

        fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    #[test]
    fn what_a_server_says_of_its_tools_has_references_too() {
        let references = [("{{ workspace }}".to_owned(), "/tmp/w-1".to_owned())].into();
        let tools = referenced(Arc::new(Echo), &references).tools();
        assert_eq!(tools[0].description, "Reads below {{ workspace }}/.");
        assert_eq!(
            tools[0].input_schema["default"],
            "Reads below {{ workspace }}/."
        );
        assert!(tools[0].digest != "its own" && tools[1].digest == "its own");
    }

    #[tokio::test]
    async fn calls_have_values_and_results_and_errors_have_references() {
        let references = [("{{ workspace }}".to_owned(), "/tmp/w-1".to_owned())].into();
        let session = referenced(Arc::new(Echo), &references);
        let given = json!({"path": "{{ workspace }}/a"});
        let given = given.as_object().unwrap();
        let limit = Duration::from_secs(1);
        let result = session.call("read", given, "k", limit).await.unwrap();
        assert_eq!(result.content[0]["text"], "read {{ workspace }}/a");
        let expected = json!({"{{ workspace }}/a": ["{{ workspace }}/a", 1]});
        assert_eq!(result.structured, Some(expected));
        let failed = session.call("read", &Map::new(), "k", limit).await;
        let error = failed.unwrap_err();
        assert_eq!(error.message, "no such file: {{ workspace }}/b");
    }
}
