//! The type of an expression, and everything in it that can never work.
//!
//! One walk over the syntax tree, like an evaluation, with types for values. A field that no value
//! can have, and a value that can never be used in this way, are findings; after a finding the type
//! is unknown, so that nothing is reported twice.

use std::cell::Cell;
use std::collections::BTreeMap;

use jmespath::ast::{Ast, Comparator};

use super::functions;
use super::near_names::{inside, listed};
use super::paths::{PathOwner, begins_with_a_field, describe, first, path_of};
use super::spelling::likely_typo;
use super::{KindSet, ValueType, transform};
use crate::expression::{Expression, Root, to_value};
use ktsu_codes::nearest;

/// The types of the names that an expression of a workflow may mention.
#[derive(Debug, Clone)]
pub struct NameTypes {
    /// `params`.
    pub params: ValueType,
    /// True if the names that expressions take of `params` were checked already.
    pub params_judged: bool,
    /// `item`, in a fan-out.
    pub item: ValueType,
    /// `resume.data`, in a step that waits for data.
    pub resume_data: ValueType,
    /// By id; a step that is not among them may be anything.
    pub steps: BTreeMap<String, ValueType>,
}

/// Something in an expression that can never be, or is hardly meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub problem: FindingKind,
    /// Byte offset in the source of the expression.
    pub offset: usize,
    /// In characters.
    pub length: usize,
    /// A lower-case fragment.
    pub message: String,
    /// Something to type instead.
    pub hint: Option<String>,
}

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// A field that no value can have.
    UnknownField,
    /// A field that nothing declares and nothing forbids, with the name of a declared one nearly.
    NearlyDeclared,
    /// A value that can never be what is done with it.
    NeverFits,
    /// `!a.b`, which is read as `(!a).b`.
    NegatedPath,
}

/// The type that an expression over names gives, and what was found.
pub fn infer(
    expression: &Expression,
    names: &NameTypes,
    effort: &InferenceBudget,
) -> (ValueType, Vec<Finding>) {
    let mut walk = Inference::new(expression, effort);
    let found = walk.walk(
        InferenceNode::Root(names),
        PathOwner::Names,
        expression.ast(),
    );
    (found, walk.findings)
}

/// The type that an expression on an element gives, and what was found.
pub fn infer_element(
    expression: &Expression,
    element: &ValueType,
    effort: &InferenceBudget,
) -> (ValueType, Vec<Finding>) {
    let mut walk = Inference::new(expression, effort);
    let found = walk.walk(
        InferenceNode::Value(element),
        PathOwner::Element,
        expression.ast(),
    );
    (found, walk.findings)
}

/// More levels of syntax than evaluation allows are not walked.
const MAX_LEVELS: usize = 256;
/// The most work for a kit: far above what thousands of files of people need.
const MAX_EFFORT: u64 = 50_000_000;

/// The effort that all expressions of a kit may take together: once it is spent, everything may be
/// anything, and nothing more is found.
#[derive(Debug)]
pub struct InferenceBudget {
    left: Cell<u64>,
}

impl InferenceBudget {
    /// As much as a kit may take.
    pub fn of_a_kit() -> Self {
        Self::of(MAX_EFFORT)
    }

    pub(super) fn of(work: u64) -> Self {
        Self {
            left: Cell::new(work),
        }
    }

    /// Pays for a type that was made.
    pub fn spend(&self, made: &ValueType) {
        let left = self.left.get();
        self.left.set(left.saturating_sub(u64::from(made.size)));
    }

    /// Pays for work that was done elsewhere.
    pub fn charge(&self, work: u64) {
        self.left.set(self.left.get().saturating_sub(work));
    }

    /// The effort that has been spent of a kit's budget.
    pub fn spent(&self) -> u64 {
        MAX_EFFORT.saturating_sub(self.left.get())
    }

    /// Returns `true` if nothing is left.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

pub(super) struct Inference<'e> {
    expression: &'e Expression,
    pub(super) findings: Vec<Finding>,
    level: usize,
    effort: &'e InferenceBudget,
}

/// The kind of the current node.
#[derive(Clone, Copy)]
pub(super) enum InferenceNode<'t> {
    /// The object of names.
    Root(&'t NameTypes),
    /// The object behind `step`.
    Steps(&'t NameTypes),
    /// The object behind `env`.
    Env,
    /// Some value.
    Value(&'t ValueType),
}

impl<'e> Inference<'e> {
    fn new(expression: &'e Expression, effort: &'e InferenceBudget) -> Self {
        Self {
            expression,
            findings: Vec::new(),
            level: 0,
            effort,
        }
    }

    pub(super) fn walk(
        &mut self,
        data: InferenceNode<'_>,
        owner: PathOwner<'e>,
        ast: &'e Ast,
    ) -> ValueType {
        if self.level >= MAX_LEVELS || self.effort.is_spent() {
            return ValueType::any();
        }
        self.level += 1;
        let found = self.node(data, owner, ast);
        self.level -= 1;
        self.effort.spend(&found);
        found
    }

    fn node(&mut self, data: InferenceNode<'_>, owner: PathOwner<'e>, ast: &'e Ast) -> ValueType {
        match ast {
            Ast::Field { offset, name } => self.name(data, owner, *offset, name),
            Ast::Identity { .. } => match data {
                InferenceNode::Value(value) => value.clone(),
                _ => ValueType::any(),
            },
            Ast::Literal { value, .. } => ValueType::of_value(&to_value(value)),
            Ast::Index { .. } => match data {
                InferenceNode::Value(value) => self.indexed(value, owner, ast),
                _ => ValueType::any(),
            },
            Ast::Slice { .. } => match data {
                InferenceNode::Value(value) if self.holds(value, KindSet::ARRAY, owner, ast) => {
                    arrays(value, ValueType::array(value.items()))
                }
                _ => ValueType::any(),
            },
            Ast::Subexpr { offset, lhs, rhs } => self.below(data, owner, *offset, lhs, rhs),
            Ast::Or { lhs, rhs, .. } => {
                let first = self.walk(data, owner, lhs);
                let second = self.walk(data, owner, rhs);
                first.without_null().join(&second)
            }
            Ast::And { lhs, rhs, .. } => {
                let first = self.walk(data, owner, lhs);
                let second = self.walk(data, owner, rhs);
                falsy(&first).join(&second)
            }
            Ast::Not { node, .. } => {
                self.walk(data, owner, node);
                ValueType::boolean()
            }
            Ast::Condition {
                predicate, then, ..
            } => {
                self.walk(data, owner, predicate);
                self.walk(data, owner, then).or_null()
            }
            Ast::Comparison {
                comparator,
                lhs,
                rhs,
                ..
            } => self.comparison(data, owner, comparator, lhs, rhs),
            Ast::Function { name, args, .. } => functions::call(self, data, owner, name, args),
            Ast::Expref { .. } => ValueType::any(),
            Ast::Projection { lhs, rhs, .. } => {
                let list = self.walk(data, owner, lhs);
                if !self.holds(&list, KindSet::ARRAY, PathOwner::Node(lhs), lhs) {
                    return ValueType::any();
                }
                let items = list.items();
                let made = self.walk(InferenceNode::Value(&items), PathOwner::Element, rhs);
                arrays(&list, ValueType::array(made.without_null()))
            }
            Ast::Flatten { node, .. } => {
                let list = self.walk(data, owner, node);
                if !self.holds(&list, KindSet::ARRAY, PathOwner::Node(node), node) {
                    return ValueType::any();
                }
                let flat = transform::flattened(&list.clone().only(KindSet::ARRAY));
                arrays(&list, flat)
            }
            Ast::ObjectValues { node, .. } => {
                let object = self.walk(data, owner, node);
                if !self.holds(&object, KindSet::OBJECT, PathOwner::Node(node), node) {
                    return ValueType::any();
                }
                let made = ValueType::array(object.member_values());
                match object.kinds().without(KindSet::OBJECT).is_none() {
                    true => made,
                    false => made.or_null(),
                }
            }
            Ast::MultiList { elements, .. } => {
                let made = elements.iter().map(|one| self.walk(data, owner, one));
                let made = ValueType::array(ValueType::union(made.collect::<Vec<_>>()));
                unless_null(data, made)
            }
            Ast::MultiHash { elements, .. } => {
                let made = elements.iter().map(|pair| {
                    let value = self.walk(data, owner, &pair.value);
                    (pair.key.clone(), value)
                });
                let made = ValueType::record(made.collect::<Vec<_>>());
                unless_null(data, made)
            }
        }
    }

    fn name(
        &mut self,
        data: InferenceNode<'_>,
        owner: PathOwner<'e>,
        offset: usize,
        name: &'e str,
    ) -> ValueType {
        let step = |names: &NameTypes| {
            let step = names.steps.get(name);
            step.cloned().unwrap_or_else(ValueType::any)
        };
        match (data, name) {
            (InferenceNode::Value(value), "null") if value.known_field(name).is_none() => {
                // Nothing is called so; who writes it means null, and that is what it gives.
                ValueType::null()
            }
            (InferenceNode::Value(value), _) => self.field(value, owner, offset, name),
            (InferenceNode::Env, _) => ValueType::string().or_null(),
            (InferenceNode::Steps(names), _) => step(names),
            (InferenceNode::Root(_), "null") => ValueType::null(),
            (InferenceNode::Root(_), "step" | "env") => ValueType::any(),
            (InferenceNode::Root(names), "params") => names.params.clone(),
            (InferenceNode::Root(names), "item") => names.item.clone(),
            (InferenceNode::Root(_), "item_index") => ValueType::number(),
            // Of a step that waits for data: no step is called so.
            (InferenceNode::Root(names), "resume") if !names.steps.contains_key(name) => {
                let data = names.resume_data.clone();
                ValueType::record([("checkpoint", ValueType::any()), ("data", data)])
            }
            (InferenceNode::Root(names), _) => step(names),
        }
    }

    /// `lhs.rhs` or `lhs | rhs`.
    fn below(
        &mut self,
        data: InferenceNode<'_>,
        owner: PathOwner<'e>,
        dot: usize,
        lhs: &'e Ast,
        rhs: &'e Ast,
    ) -> ValueType {
        if let (InferenceNode::Root(names), Ast::Field { name, .. }) = (data, lhs) {
            match name.as_str() {
                "step" => return self.walk(InferenceNode::Steps(names), owner, rhs),
                "env" => return self.walk(InferenceNode::Env, owner, rhs),
                "params" => {
                    let params = InferenceNode::Value(&names.params);
                    let judged = names.params_judged;
                    let owner = if judged {
                        PathOwner::Params
                    } else {
                        PathOwner::Node(lhs)
                    };
                    return self.walk(params, owner, rhs);
                }
                _ => {}
            }
        }
        if let Ast::Not { offset, node } = lhs
            && begins_with_a_field(rhs)
            && let Some(found) = self.expression.negated(*offset, dot)
        {
            let hint = Some(found.hint);
            self.found(FindingKind::NegatedPath, *offset, "!", found.message, hint);
            self.walk(data, owner, node);
            return ValueType::any();
        }
        let left = self.walk(data, owner, lhs);
        if let Ast::Field { offset, name } = rhs
            && name == "output"
            && self.is_step(data, lhs)
            && left.known_field(name).is_none()
        {
            self.output_of(&left, lhs, *offset);
            return ValueType::any();
        }
        self.walk(InferenceNode::Value(&left), PathOwner::Node(lhs), rhs)
    }

    /// Returns `true` if a syntax names a step, and nothing of its output. Responders have other
    /// names.
    fn is_step(&self, data: InferenceNode<'_>, ast: &Ast) -> bool {
        let InferenceNode::Root(names) = data else {
            return false;
        };
        let is_known = |name: &str| {
            let mut roots = self.expression.roots().iter();
            let is_root = roots.any(|root| matches!(root, Root::Step(id) if id == name));
            is_root && names.steps.contains_key(name)
        };
        match ast {
            Ast::Field { name, .. } => is_known(name),
            Ast::Subexpr { lhs, rhs, .. } => {
                let is_word = matches!(&**lhs, Ast::Field { name, .. } if name == "step");
                is_word && matches!(&**rhs, Ast::Field { name, .. } if is_known(name))
            }
            _ => false,
        }
    }

    /// `step.x.output`, as other engines write it: `step.x` is the output itself. Nothing declares
    /// such a field; where a schema lets others in, one may be there all the same.
    fn output_of(&mut self, output: &ValueType, step: &'e Ast, offset: usize) {
        let whose = describe(PathOwner::Node(step));
        let problem = match output
            .members()
            .is_some_and(|members| members.rest.is_none())
        {
            true => FindingKind::UnknownField,
            false => FindingKind::NearlyDeclared,
        };
        let message = format!("{whose} is the output itself, and declares no field \"output\"");
        let source = self.expression.source();
        let at = self.expression.source_offset(offset) + "output".len();
        let rest = source.get(at..).unwrap_or_default();
        let is_path = |one: char| one.is_alphanumeric() || "_-.".contains(one);
        let end = rest.find(|one| !is_path(one)).unwrap_or(rest.len());
        let rest = rest.get(..end).unwrap_or_default().trim_end_matches('.');
        let hint = format!("did you mean {whose}{rest}?");
        self.found(problem, offset, "output", message, Some(hint));
    }

    fn field(
        &mut self,
        value: &ValueType,
        owner: PathOwner<'e>,
        offset: usize,
        name: &str,
    ) -> ValueType {
        if value.is_any() || !value.is_informative() {
            return value.clone();
        }
        if matches!(name, "true" | "false") && value.known_field(name).is_none() {
            return self.literal(offset, name);
        }
        if !value.kinds().meets(KindSet::OBJECT) {
            let whose = describe(owner);
            let message = format!("{whose} is {}, which has no fields", value.words());
            let hint = inside(value, name).map(|path| format!("did you mean {whose}{path}?"));
            self.found(FindingKind::NeverFits, offset, name, message, hint);
            return ValueType::any();
        }
        let others = !value.kinds().without(KindSet::OBJECT).is_none();
        let judged = |name: &str| self.expression.params().names.contains(name);
        let judged = matches!(owner, PathOwner::Params) && judged(name);
        let Some(members) = value.members() else {
            return ValueType::any();
        };
        match (members.named.get(name), &members.rest) {
            (Some(member), _) if !member.value.is_never() => {
                let found = member.value.clone();
                match member.always && !others {
                    true => found,
                    false => found.or_null(),
                }
            }
            (None, Some(rest)) => {
                if let Some(near) = likely_typo(name, value.field_names()).filter(|_| !judged) {
                    let message = format!("{} declares no {name:?}", describe(owner));
                    let hint = Some(format!("did you mean {near}?"));
                    self.found(FindingKind::NearlyDeclared, offset, name, message, hint);
                }
                rest.clone().or_null()
            }
            (Some(_), _) | (None, None) if judged => ValueType::any(),
            (Some(_), _) | (None, None) => {
                self.absent(value, owner, offset, name);
                ValueType::any()
            }
        }
    }

    /// A bare `true` is the name of a field.
    fn literal(&mut self, offset: usize, name: &str) -> ValueType {
        let message = format!("{name} is read as the name of a field");
        let hint = format!("in an expression it is written `{name}`, with backticks");
        self.found(FindingKind::UnknownField, offset, name, message, Some(hint));
        ValueType::boolean()
    }

    /// A field that can never be there.
    fn absent(&mut self, value: &ValueType, owner: PathOwner<'e>, offset: usize, name: &str) {
        let whose = describe(owner);
        if super::schema::RESERVED.contains(&name) {
            let message = format!("{whose} never has {name:?}: it is taken from every output");
            let hint = Some("reserved fields are for the engine".to_owned());
            self.found(FindingKind::UnknownField, offset, name, message, hint);
            return;
        }
        let message = format!("{whose} cannot have a field {name:?}");
        let known: Vec<&str> = value.field_names().collect();
        let meant = likely_typo(name, known.iter().copied()).map(str::to_owned);
        let meant = meant.or_else(|| Some(format!("{whose}{}", inside(value, name)?)));
        let meant = meant.or_else(|| nearest(name, known.iter().copied()).map(str::to_owned));
        let hint = match meant {
            Some(meant) => Some(format!("did you mean {meant}?")),
            None if known.is_empty() => None,
            None => Some(format!("it can have {}", listed(&known))),
        };
        self.found(FindingKind::UnknownField, offset, name, message, hint);
    }

    fn indexed(&mut self, value: &ValueType, owner: PathOwner<'e>, ast: &'e Ast) -> ValueType {
        match self.holds(value, KindSet::ARRAY, owner, ast) {
            true => value.items().or_null(),
            false => ValueType::any(),
        }
    }

    /// Returns `true` if a value may be of a kind that its use needs; otherwise adds a finding.
    fn holds(
        &mut self,
        value: &ValueType,
        kind: KindSet,
        owner: PathOwner<'e>,
        at: &'e Ast,
    ) -> bool {
        if !value.is_informative() || value.kinds().meets(kind) {
            return true;
        }
        let message = format!(
            "{} is {}, and only {} has such parts",
            describe(owner),
            value.words(),
            kind.words()
        );
        self.never_fits(at, message, None);
        false
    }

    fn comparison(
        &mut self,
        data: InferenceNode<'_>,
        owner: PathOwner<'e>,
        comparator: &Comparator,
        lhs: &'e Ast,
        rhs: &'e Ast,
    ) -> ValueType {
        let left = self.walk(data, owner, lhs);
        let right = self.walk(data, owner, rhs);
        if let Comparator::Equal | Comparator::NotEqual = comparator {
            let both = left.is_informative() && right.is_informative();
            if both && !left.kinds().meets(right.kinds()) {
                let (a, b) = (left.words(), right.words());
                let message = format!("{a} is never equal to {b}");
                let texts = left.kinds().or(right.kinds());
                let hint = texts.meets(KindSet::STRING).then(|| {
                    "'1' is text; numbers and booleans are written in backticks: `1`, `true`"
                        .to_owned()
                });
                self.never_fits(lhs, message, hint);
            }
            return ValueType::boolean();
        }
        for (side, value) in [(lhs, &left), (rhs, &right)] {
            if value.is_informative() && !value.kinds().meets(KindSet::NUMBER) {
                let message = format!("{} has no order, only numbers have", value.words());
                let hint = "a number is written in backticks: `1`".to_owned();
                self.never_fits(side, message, Some(hint));
                break;
            }
        }
        ValueType::boolean().or_null()
    }

    /// Notes that a part of the expression is never what its use needs.
    pub(super) fn never_fits(&mut self, at: &'e Ast, message: String, hint: Option<String>) {
        let (offset, name) = first(at);
        let path = path_of(at);
        let name = path.as_deref().unwrap_or(name);
        self.found(FindingKind::NeverFits, offset, name, message, hint);
    }

    fn found(
        &mut self,
        problem: FindingKind,
        offset: usize,
        name: &str,
        message: String,
        hint: Option<String>,
    ) {
        self.findings.push(Finding {
            problem,
            offset: self.expression.source_offset(offset),
            length: name.chars().count().max(1),
            message,
            hint,
        });
    }
}

/// The part of a value that is false, and so ends an `&&`.
fn falsy(value: &ValueType) -> ValueType {
    let plain = KindSet::NULL.or(KindSet::BOOL).or(KindSet::STRING);
    let mut found = value.clone().only(plain);
    if value.kinds().meets(KindSet::ARRAY) {
        found = found.join(&ValueType::array(ValueType::never()));
    }
    if value.kinds().meets(KindSet::OBJECT) {
        found = found.join(&ValueType::record::<String>([]));
    }
    found
}

/// Null where the value it is made of is no array.
fn arrays(of: &ValueType, made: ValueType) -> ValueType {
    match of.kinds().without(KindSet::ARRAY).is_none() {
        true => made,
        false => made.or_null(),
    }
}

/// Of null nothing is made.
fn unless_null(data: InferenceNode<'_>, made: ValueType) -> ValueType {
    match data {
        InferenceNode::Value(value) if value.kinds().meets(KindSet::NULL) => made.or_null(),
        _ => made,
    }
}
