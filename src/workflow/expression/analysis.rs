//! Static analysis of a parsed expression: what it mentions, and whether it is valid.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a path has two kinds of nodes, anything else makes it none"
)]

use std::collections::{BTreeMap, BTreeSet};

use jmespath::ast::Ast;

use super::error::ExpressionError;
use super::functions::Signature;
use super::names::{INVOKED, InvokedMention, ParamNames, Root, Vocabulary};
use super::negated::NegatedPath;
use super::value::measure;

/// The kind of the current node of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeScope {
    /// The object of names.
    Root,
    /// The object behind `step`.
    Steps,
    /// The object behind `env`.
    Env,
    /// Some value below it, or an element of an array.
    Element,
}

/// One step down a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A member of an object.
    Field(String),
    /// An item of an array.
    Index(usize),
}

impl Segment {
    /// As a segment of a JSON pointer, slash included.
    pub(super) fn to_pointer(&self) -> String {
        match self {
            Self::Field(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Self::Index(index) => format!("/{index}"),
        }
    }
}

/// More levels of syntax than this are refused: the walkers below are recursive.
const MAX_SYNTAX_DEPTH: usize = 256;
/// No slice jumps further; keeps index arithmetic far from its limits.
const MAX_SLICE_STEP: i32 = 1 << 20;

pub(super) struct Analysis<'j> {
    pub(super) roots: BTreeSet<Root>,
    pub(super) params: ParamNames,
    /// The steps of which it mentions what their commands ran, and how.
    pub(super) invoked: BTreeMap<String, InvokedMention>,
    /// The step whose value the current node is looked up in.
    within: Option<String>,
    /// True if it mentions that of a value which may be that of any step.
    invoked_of_any: bool,
    vocabulary: Vocabulary,
    depth: usize,
    /// The explanation of a negated path, by the places of the `!` and of the dot.
    negated: &'j dyn Fn(usize, usize) -> Option<NegatedPath>,
}

pub(super) fn analyze<'j>(
    ast: &Ast,
    scope: NodeScope,
    vocabulary: Vocabulary,
    negated: &'j dyn Fn(usize, usize) -> Option<NegatedPath>,
) -> Result<Analysis<'j>, ExpressionError> {
    let mut judged = Analysis {
        roots: BTreeSet::new(),
        params: ParamNames::default(),
        invoked: BTreeMap::new(),
        within: None,
        invoked_of_any: false,
        vocabulary,
        depth: 0,
        negated,
    };
    judged.node(ast, scope)?;
    if judged.invoked_of_any {
        for root in &judged.roots {
            if let Root::Step(id) = root {
                let entry = judged.invoked.entry(id.clone());
                entry.or_insert(InvokedMention::Within);
            }
        }
    }
    Ok(judged)
}

fn refuse<T>(offset: usize, message: impl Into<String>, hint: &str) -> Result<T, ExpressionError> {
    Err(ExpressionError {
        message: message.into(),
        offset,
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
        negated_path: false,
    })
}

impl Analysis<'_> {
    /// Examples of what may be written instead of all names at once.
    fn example(&self) -> &'static str {
        match self.vocabulary {
            Vocabulary::Workflow => "name something: params.x, step.ID.x, env.NAME",
            Vocabulary::Responder => "name something: object.data.x, params.x, env.NAME",
        }
    }

    fn node(&mut self, ast: &Ast, scope: NodeScope) -> Result<(), ExpressionError> {
        self.depth += 1;
        if self.depth > MAX_SYNTAX_DEPTH {
            return refuse(0, "the expression is nested too deeply", "");
        }
        let outcome = self.inner(ast, scope);
        self.depth -= 1;
        outcome
    }

    fn inner(&mut self, ast: &Ast, scope: NodeScope) -> Result<(), ExpressionError> {
        match ast {
            Ast::Field { offset, name } => self.name(*offset, name, scope),
            Ast::Subexpr { offset, lhs, rhs } => self.below(*offset, lhs, rhs, scope),
            Ast::Identity { offset } => match scope {
                NodeScope::Root | NodeScope::Steps | NodeScope::Env => refuse(
                    *offset,
                    "the names cannot be taken as a whole",
                    self.example(),
                ),
                NodeScope::Element => Ok(()),
            },
            Ast::Index { offset, .. } if scope != NodeScope::Element => {
                refuse(*offset, "there is nothing to index here", self.example())
            }
            Ast::Slice { offset, step, .. } => slice(*offset, *step, scope, self.example()),
            // What no result may be would fail in every run.
            Ast::Literal { offset, value } => match measure(value) {
                Ok(_) => Ok(()),
                Err(error) => refuse(*offset, error.message, ""),
            },
            Ast::Index { .. } => Ok(()),
            Ast::Expref { offset, .. } => refuse(
                *offset,
                "an expression reference is only an argument",
                "as in sort_by(params.rows, &age)",
            ),
            Ast::Function { offset, name, args } => self.function(*offset, name, args, scope),
            Ast::Not { node, .. } | Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } => {
                self.node(node, scope)
            }
            Ast::And { lhs, rhs, .. } | Ast::Or { lhs, rhs, .. } => {
                self.node(lhs, scope)?;
                self.node(rhs, scope)
            }
            Ast::Comparison { lhs, rhs, .. } => {
                self.node(lhs, scope)?;
                self.node(rhs, scope)
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                self.node(predicate, scope)?;
                self.node(then, scope)
            }
            Ast::Projection { lhs, rhs, .. } => {
                self.node(lhs, scope)?;
                self.node_within(rhs, None)
            }
            Ast::MultiList { elements, .. } => elements
                .iter()
                .try_for_each(|element| self.node(element, scope)),
            Ast::MultiHash { elements, .. } => elements
                .iter()
                .try_for_each(|pair| self.node(&pair.value, scope)),
        }
    }

    fn name(&mut self, offset: usize, name: &str, scope: NodeScope) -> Result<(), ExpressionError> {
        let root = match (scope, name) {
            (NodeScope::Element, INVOKED) => {
                match self.within.clone() {
                    Some(id) => drop(self.invoked.entry(id).or_insert(InvokedMention::Within)),
                    None => self.invoked_of_any = true,
                }
                return Ok(());
            }
            (NodeScope::Element, _) | (NodeScope::Root, "null") => return Ok(()),
            (NodeScope::Steps, id) => Root::Step(id.to_owned()),
            (NodeScope::Env, name) => Root::Env(name.to_owned()),
            (NodeScope::Root, "step") if self.vocabulary == Vocabulary::Workflow => {
                return refuse(offset, "`step` needs a step id", "step.ID");
            }
            (NodeScope::Root, "env") => {
                return refuse(offset, "`env` needs the name of a variable", "env.NAME");
            }
            (NodeScope::Root, "params") => {
                self.params.whole = true;
                Root::Params
            }
            (NodeScope::Root, "item") => Root::Item,
            (NodeScope::Root, "item_index") => Root::ItemIndex,
            (NodeScope::Root, name) => named(self.vocabulary, name),
        };
        self.roots.insert(root);
        Ok(())
    }

    /// `lhs.rhs` or `lhs | rhs`; `step.ID` and `env.NAME` are names of their own.
    fn below(
        &mut self,
        dot: usize,
        lhs: &Ast,
        rhs: &Ast,
        scope: NodeScope,
    ) -> Result<(), ExpressionError> {
        if let (NodeScope::Root, Some(not)) = (scope, negated_space(lhs, self.vocabulary))
            && let Some(found) = (self.negated)(not, dot)
        {
            return Err(ExpressionError {
                message: found.message,
                offset: not,
                hint: Some(found.hint),
                negated_path: true,
            });
        }
        if scope == NodeScope::Root
            && let Some(id) = path_of(lhs, rhs).and_then(|path| invoked_step(path, self.vocabulary))
        {
            self.invoked.insert(id, InvokedMention::Path);
        }
        if scope == NodeScope::Root
            && let Ast::Field { name, .. } = lhs
        {
            match name.as_str() {
                "step" if self.vocabulary == Vocabulary::Workflow => {
                    return self.node(rhs, NodeScope::Steps);
                }
                "env" => return self.node(rhs, NodeScope::Env),
                "params" => {
                    self.roots.insert(Root::Params);
                    match leading(rhs) {
                        Some(name) => drop(self.params.names.insert(name.to_owned())),
                        None => self.params.whole = true,
                    }
                    return self.node(rhs, NodeScope::Element);
                }
                _ => {}
            }
        }
        self.node(lhs, scope)?;
        let step = match (lhs, scope) {
            (Ast::Field { name, .. }, NodeScope::Steps) => Some(name.clone()),
            (_, NodeScope::Root) => self.step_of(lhs),
            (_, NodeScope::Steps | NodeScope::Env | NodeScope::Element) => None,
        };
        self.node_within(rhs, step)
    }

    /// Looks at what is evaluated on a value: that of a step, or another.
    fn node_within(&mut self, ast: &Ast, step: Option<String>) -> Result<(), ExpressionError> {
        let around = std::mem::replace(&mut self.within, step);
        let outcome = self.node(ast, NodeScope::Element);
        self.within = around;
        outcome
    }

    /// The step whose value a part of the expression is.
    fn step_of(&self, ast: &Ast) -> Option<String> {
        match path(ast, self.vocabulary)? {
            (Root::Step(id), rest) if rest.is_empty() => Some(id),
            _ => None,
        }
    }

    fn function(
        &mut self,
        offset: usize,
        name: &str,
        args: &[Ast],
        scope: NodeScope,
    ) -> Result<(), ExpressionError> {
        let Some(signature) = Signature::of(name) else {
            let hint = super::functions::nearest(name).map(|near| format!("did you mean {near}?"));
            let hint = hint.unwrap_or_default();
            return refuse(offset, format!("unknown function {name:?}"), &hint);
        };
        if !signature.takes(args.len()) {
            let wanted = signature.arguments();
            let message = format!("{name} takes {wanted}, got {}", args.len());
            return refuse(offset, message, "");
        }
        for (position, arg) in args.iter().enumerate() {
            match (arg, signature.expression == Some(position)) {
                (Ast::Expref { ast, .. }, true) => self.node_within(ast, None)?,
                (_, true) => {
                    let message = format!("{name} needs an expression reference");
                    return refuse(offset, message, "put & before it: &name");
                }
                (arg, false) => self.node(arg, scope)?,
            }
        }
        Ok(())
    }
}

fn slice(offset: usize, step: i32, scope: NodeScope, example: &str) -> Result<(), ExpressionError> {
    if scope != NodeScope::Element {
        return refuse(offset, "there is nothing to slice here", example);
    }
    if step == 0 {
        return refuse(offset, "a slice cannot have step 0", "");
    }
    if step.abs() > MAX_SLICE_STEP {
        return refuse(offset, "the step of the slice is too large", "");
    }
    Ok(())
}

/// The member that is taken first, if it is a single one.
fn leading(ast: &Ast) -> Option<&str> {
    match ast {
        Ast::Field { name, .. } => Some(name),
        Ast::Subexpr { lhs, .. } => leading(lhs),
        _ => None,
    }
}

/// The place of a `!step` or `!env`, which alone is nothing; for a responder, of any negated name:
/// its subject is never true or false as a whole.
fn negated_space(ast: &Ast, vocabulary: Vocabulary) -> Option<usize> {
    let Ast::Not { offset, node } = ast else {
        return None;
    };
    let mut inner = node;
    while let Ast::Not { node, .. } = &**inner {
        inner = node;
    }
    match &**inner {
        Ast::Field { .. } if vocabulary == Vocabulary::Responder => Some(*offset),
        Ast::Field { name, .. } if name == "step" || name == "env" => Some(*offset),
        _ => None,
    }
}

/// The meaning of a name at the root that has no other.
fn named(vocabulary: Vocabulary, name: &str) -> Root {
    match vocabulary {
        Vocabulary::Workflow if name == "resume" => Root::Resume,
        Vocabulary::Workflow => Root::Step(name.to_owned()),
        Vocabulary::Responder => Root::Name(name.to_owned()),
    }
}

fn spaced(space: &str, name: &str) -> Option<Root> {
    match space {
        "step" => Some(Root::Step(name.to_owned())),
        "env" => Some(Root::Env(name.to_owned())),
        _ => None,
    }
}

/// The step of which a path takes what its commands ran, if it ends there.
fn invoked_step(path: Vec<Segment>, vocabulary: Vocabulary) -> Option<String> {
    match rooted(path, vocabulary)? {
        (Root::Step(id), rest) => (*rest == [Segment::Field(INVOKED.to_owned())]).then_some(id),
        _ => None,
    }
}

/// `lhs.rhs` as a path. It is one of a few segments: others are of no interest.
fn path_of(lhs: &Ast, rhs: &Ast) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    flatten(lhs, &mut segments)?;
    flatten(rhs, &mut segments)?;
    (segments.len() <= 3).then_some(segments)
}

/// The expression as a path, if it is one.
pub(super) fn path(ast: &Ast, vocabulary: Vocabulary) -> Option<(Root, Box<[Segment]>)> {
    let mut segments = Vec::new();
    flatten(ast, &mut segments)?;
    rooted(segments, vocabulary)
}

fn rooted(segments: Vec<Segment>, vocabulary: Vocabulary) -> Option<(Root, Box<[Segment]>)> {
    let mut segments = segments.into_iter();
    let Segment::Field(first) = segments.next()? else {
        return None;
    };
    let root = match first.as_str() {
        "null" => return None,
        "params" => Root::Params,
        "item" => Root::Item,
        "item_index" => Root::ItemIndex,
        "step" if vocabulary == Vocabulary::Responder => Root::Name(first),
        "step" | "env" => match segments.next()? {
            Segment::Field(name) => spaced(&first, &name)?,
            Segment::Index(_) => return None,
        },
        _ => named(vocabulary, &first),
    };
    Some((root, segments.collect()))
}

fn flatten(ast: &Ast, segments: &mut Vec<Segment>) -> Option<()> {
    if let Ast::Subexpr { lhs, rhs, .. } = ast {
        flatten(lhs, segments)?;
        return flatten(rhs, segments);
    }
    segments.push(match ast {
        Ast::Field { name, .. } => Segment::Field(name.clone()),
        Ast::Index { idx, .. } => Segment::Index(usize::try_from(*idx).ok()?),
        _ => return None,
    });
    Some(())
}
