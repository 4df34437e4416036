//! Expressions, templates and schemas in files, parsed here so that their faults have a location.

use ktsu_ledger::CanonicalJson;

use super::read::{KitReader, Mention, NameUsage, member, members};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_workflow::airlock::{Schema, SchemaError};
use ktsu_workflow::defaults;
use ktsu_workflow::expression::{Expression, ExpressionError, Root};
use ktsu_workflow::params::ParamsSchema;
use ktsu_workflow::template::{Template, located};

impl KitReader<'_> {
    /// A tree as canonical JSON.
    pub(super) fn tree(&mut self, node: &YamlNode) -> Option<CanonicalJson> {
        self.report_nested_duplicates(node);
        match CanonicalJson::from_value(&node.to_value()) {
            Ok(json) => Some(json),
            Err(_) => {
                let words = "nested deeper than 64 levels";
                self.fault(Fault::new(FaultCode::TooDeep, node.place, words));
                None
            }
        }
    }

    /// A JSON Schema that compiles.
    pub(super) fn schema(&mut self, node: &YamlNode) -> Option<CanonicalJson> {
        self.schema_with(node, |json| Schema::compile_output(json).map(drop))
    }

    /// As [`Self::schema`], of data in which no field is for the engine.
    pub(super) fn plain_schema(&mut self, node: &YamlNode) -> Option<CanonicalJson> {
        self.schema_with(node, |json| Schema::compile(json).map(drop))
    }

    pub(super) fn params_schema(&mut self, node: &YamlNode) -> Option<CanonicalJson> {
        if let YamlValue::Bool(false) = node.data {
            let words = "nothing fits this schema, so nothing could be called with it";
            self.fault(Fault::new(FaultCode::BadSchema, node.place, words));
            return None;
        }
        let json = self.schema_with(node, |json| ParamsSchema::compile(json).map(drop))?;
        self.defaults(node, &json);
        let kind = member(Some(node), "type");
        if let Some(kind) = kind.filter(|kind| !may_be_object(kind)) {
            let words = "params are an object, and their schema must let them be one";
            self.fault(Fault::new(FaultCode::BadSchema, kind.place, words));
            return None;
        }
        Some(json)
    }

    /// A default counts as given, so it has to fit.
    fn defaults(&mut self, node: &YamlNode, json: &CanonicalJson) {
        let Ok(schema) = ParamsSchema::compile(json) else {
            return;
        };
        for (key, property) in members(member(Some(node), "properties")) {
            let Some(default) = member(Some(property), "default") else {
                continue;
            };
            if let Some(violation) = schema.check_default(&key.text).into_iter().next() {
                let words = format!("the default does not fit: {}", violation.message);
                self.fault(Fault::new(FaultCode::BadValue, default.place, words));
            }
        }
    }

    fn schema_with(
        &mut self,
        node: &YamlNode,
        compile: impl FnOnce(&CanonicalJson) -> Result<(), SchemaError>,
    ) -> Option<CanonicalJson> {
        let json = self.tree(node)?;
        let document = json.to_value();
        let judged = compile(&json).and_then(|()| defaults::check(&document));
        match judged {
            Ok(()) => {
                self.recursions(node, &document);
                Some(json)
            }
            Err(error) => {
                let words = format!("not a JSON Schema we can use: {}", error.message);
                let place = node.at(&error.pointer).place;
                self.fault(Fault::new(FaultCode::BadSchema, place, words));
                None
            }
        }
    }

    /// Warns where a recursion reaches one definition by two paths: a deep value is refused.
    fn recursions(&mut self, node: &YamlNode, document: &serde_json::Value) {
        for found in ktsu_schema::recursions_with_two_ways(document) {
            let [one, other] = found.ways.each_ref().map(|way| node.at(way).place);
            let definition = match found.definition.as_str() {
                "" => "the whole schema".to_owned(),
                pointer => format!("#{pointer}"),
            };
            let [first, second] = &found.ways;
            let words = format!(
                "a recursion comes to {definition} at one place by two ways: #{first} here, and \
                 #{second} at {}:{}",
                other.line, other.column
            );
            let hint = "a value nested deeply is refused with schema_too_expensive; give the \
                        fields different names, or declare the field once";
            let fault = Fault::new(FaultCode::AmbiguousRecursion, one, words).warning();
            self.fault(fault.hint(hint));
        }
    }

    /// A tree of templates.
    pub(super) fn template(&mut self, node: &YamlNode, usage: NameUsage) -> Option<CanonicalJson> {
        let json = self.tree(node)?;
        match Template::parse_with(&json.to_value(), usage.vocabulary()) {
            Ok(_) => {
                self.mention(node, usage);
                Some(json)
            }
            Err(error) => {
                let leaf = node.at(&error.pointer);
                let place = self.inside(leaf, error.offset, 1);
                let fault = match error.negated_path {
                    true => Fault::new(FaultCode::NegatedPath, place, error.message),
                    false => {
                        let words = format!("bad template: {}", error.message);
                        Fault::new(FaultCode::BadTemplate, place, words)
                    }
                };
                self.fault(with_hint(fault, error.hint));
                None
            }
        }
    }

    /// Notes the names of every string of a tree at that string.
    fn mention(&mut self, node: &YamlNode, usage: NameUsage) {
        match &node.data {
            YamlValue::Text(text) => {
                let text_of = serde_json::Value::from(text.as_str());
                let template = Template::parse_with(&text_of, usage.vocabulary());
                let starts = located(text).0;
                let starts = starts.into_iter().map(|(start, _)| start);
                let expressions = template.iter().flat_map(Template::expressions);
                for (expression, start) in expressions.zip(starts) {
                    self.note(expression, node, start, usage);
                }
            }
            YamlValue::List(items) => items.iter().for_each(|item| self.mention(item, usage)),
            YamlValue::Map(members) => members
                .iter()
                .for_each(|(_, node)| self.mention(node, usage)),
            _ => {}
        }
    }

    fn note(&mut self, expression: &Expression, node: &YamlNode, start: usize, usage: NameUsage) {
        for root in expression.roots() {
            let mention = |name: &str, params: Vec<String>| Mention {
                params,
                root: root.clone(),
                place: self.line_of(expression, node, start, name),
                rest: following(expression, name).to_owned(),
                usage,
            };
            let new = match root {
                Root::Params if !expression.params().names.is_empty() => {
                    let names = expression.params().names.iter();
                    names
                        .map(|name| mention(name, vec![name.clone()]))
                        .collect()
                }
                Root::Params => vec![mention("params", Vec::new())],
                Root::Env(name) | Root::Step(name) | Root::Name(name) => {
                    vec![mention(name, Vec::new())]
                }
                Root::Item => vec![mention("item", Vec::new())],
                Root::ItemIndex => vec![mention("item_index", Vec::new())],
                Root::Resume => vec![mention("resume", Vec::new())],
            };
            self.mentions.extend(new);
        }
    }

    /// The place of a text that mentions a name; of one over several lines the line of the name.
    fn line_of(
        &self,
        expression: &Expression,
        node: &YamlNode,
        start: usize,
        name: &str,
    ) -> SourceSpan {
        let offset = expression.offset_of(name).unwrap_or_default();
        let place = self.spot(node, start + offset, name.chars().count());
        match place.line == node.place.line {
            true => node.place,
            false => place,
        }
    }

    /// An expression over names; a surrounding `{{ }}` is tolerated. Gives the bare text.
    pub(super) fn expression(
        &mut self,
        node: &YamlNode,
        what: &str,
        usage: NameUsage,
    ) -> Option<String> {
        let (source, start) = bare(self.string(node, what)?);
        match Expression::parse_with(source, usage.vocabulary()) {
            Ok(expression) => {
                self.note(&expression, node, start, usage);
                Some(source.to_owned())
            }
            Err(error) => self.bad_expression(node, start, error),
        }
    }

    /// An expression on elements.
    pub(super) fn element(&mut self, node: &YamlNode, what: &str) -> Option<String> {
        let (source, start) = bare(self.string(node, what)?);
        match Expression::parse_element(source) {
            Ok(_) => Some(source.to_owned()),
            Err(error) => self.bad_expression(node, start, error),
        }
    }

    fn bad_expression<T>(
        &mut self,
        node: &YamlNode,
        start: usize,
        error: ExpressionError,
    ) -> Option<T> {
        let place = self.inside(node, start + error.offset, 1);
        let fault = match error.negated_path {
            true => Fault::new(FaultCode::NegatedPath, place, error.message),
            false => {
                let words = format!("bad expression: {}", error.message);
                Fault::new(FaultCode::BadExpression, place, words)
            }
        };
        self.fault(with_hint(fault, error.hint));
        None
    }

    /// As [`Self::inside`], and of text over several lines the very line: the word that begins
    /// there is looked for in the file.
    pub(super) fn spot(&self, node: &YamlNode, offset: usize, length: usize) -> SourceSpan {
        let inside = self.inside(node, offset, length);
        if inside != node.place {
            return inside;
        }
        self.lines_below(node, offset, length).unwrap_or(inside)
    }

    fn lines_below(&self, node: &YamlNode, offset: usize, length: usize) -> Option<SourceSpan> {
        let YamlValue::Text(value) = &node.data else {
            return None;
        };
        let rest = value.get(offset..)?;
        let word = rest.split_whitespace().next()?;
        let earlier = value
            .match_indices(word)
            .take_while(|(at, _)| *at < offset)
            .count();
        let source = self.text.get(node.place.offset..)?;
        let (at, _) = source.match_indices(word).nth(earlier)?;
        let before = source.get(..at)?;
        let below = before.matches('\n').count();
        let column = match before.rsplit_once('\n') {
            Some((_, line)) => line.chars().count() + 1,
            None => node.place.column + before.chars().count(),
        };
        Some(SourceSpan {
            line: node.place.line + below,
            column,
            length,
            offset: node.place.offset + at,
        })
    }

    /// The place of a byte of a string, where the string stands in the file as it is; otherwise
    /// the place of the whole string.
    fn inside(&self, node: &YamlNode, offset: usize, length: usize) -> SourceSpan {
        let whole = node.place;
        let YamlValue::Text(value) = &node.data else {
            return whole;
        };
        let Some(rest) = self.text.get(whole.offset..) else {
            return whole;
        };
        let quote = usize::from(rest.starts_with(['"', '\'']));
        let shown = rest
            .get(quote..)
            .is_some_and(|rest| rest.starts_with(value.as_str()));
        let Some(before) = value
            .get(..offset)
            .filter(|_| shown && !value.contains('\n'))
        else {
            return whole;
        };
        SourceSpan {
            column: whole.column + quote + before.chars().count(),
            length,
            offset: whole.offset + quote + offset,
            ..whole
        }
    }
}

fn with_hint(fault: Fault, hint: Option<String>) -> Fault {
    match hint {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

/// An expression without the `{{ }}` around it, and where it begins.
pub(super) fn bare(source: &str) -> (&str, usize) {
    let trimmed = source.trim();
    let inner = trimmed
        .strip_prefix("{{")
        .and_then(|rest| rest.strip_suffix("}}"));
    let inner = inner.map_or(trimmed, str::trim);
    let start = inner.as_ptr() as usize - source.as_ptr() as usize;
    (inner, start)
}

/// Returns `true` if the `type` of a schema lets a value be an object.
pub(super) fn may_be_object(kind: &YamlNode) -> bool {
    match kind.to_value() {
        serde_json::Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        kind => kind == "object",
    }
}

/// The fields that a name in an expression is followed by.
fn following<'e>(expression: &'e Expression, name: &str) -> &'e str {
    let at = expression.offset_of(name).map(|at| at + name.len());
    let rest = at.and_then(|at| expression.source().get(at..));
    let rest = rest
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or_default();
    let is_path = |one: char| one.is_alphanumeric() || "_-.".contains(one);
    let end = rest.find(|one| !is_path(one)).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().trim_end_matches('.')
}
