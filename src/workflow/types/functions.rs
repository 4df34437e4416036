//! The types of arguments and results of JMESPath functions.

use jmespath::ast::Ast;

use super::infer::{Inference, InferenceNode};
use super::paths::PathOwner;
use super::{KindSet, ValueType};

/// The type that a call gives; an argument that can never be what it has to be becomes a finding.
pub(super) fn call<'e>(
    walk: &mut Inference<'e>,
    data: InferenceNode<'_>,
    owner: PathOwner<'e>,
    name: &str,
    args: &'e [Ast],
) -> ValueType {
    match (name, args) {
        ("map", [Ast::Expref { ast, .. }, list]) => {
            let items = list_of(walk, data, owner, name, list).items();
            let made = walk.walk(InferenceNode::Value(&items), PathOwner::Element, ast);
            ValueType::array(made)
        }
        (_, [list, Ast::Expref { ast, .. }]) => {
            let list = list_of(walk, data, owner, name, list);
            walk.walk(InferenceNode::Value(&list.items()), PathOwner::Element, ast);
            match name {
                "sort_by" => ValueType::array(list.items()),
                _ => list.items().or_null(),
            }
        }
        _ => {
            let given: Vec<ValueType> =
                args.iter().map(|arg| walk.walk(data, owner, arg)).collect();
            for ((wanted, value), arg) in wanted(name, args.len()).zip(&given).zip(args) {
                judge(walk, name, wanted, value, arg);
            }
            plain(name, &given)
        }
    }
}

fn list_of<'e>(
    walk: &mut Inference<'e>,
    data: InferenceNode<'_>,
    owner: PathOwner<'e>,
    name: &str,
    list: &'e Ast,
) -> ValueType {
    let value = walk.walk(data, owner, list);
    judge(walk, name, KindSet::ARRAY, &value, list);
    value
}

fn judge<'e>(
    walk: &mut Inference<'e>,
    name: &str,
    wanted: KindSet,
    value: &ValueType,
    arg: &'e Ast,
) {
    if value.is_informative() && !value.kinds().meets(wanted) {
        let message = format!(
            "{name} needs {}, and gets {}",
            wanted.words(),
            value.words()
        );
        walk.never_fits(arg, message, None);
    }
}

/// The kinds that each argument has to have.
fn wanted(name: &str, count: usize) -> impl Iterator<Item = KindSet> {
    let text = KindSet::STRING;
    let list = KindSet::ARRAY;
    let (first, second) = match name {
        "abs" | "ceil" | "floor" => (KindSet::NUMBER, KindSet::ALL),
        "avg" | "sum" | "max" | "min" | "sort" => (list, KindSet::ALL),
        "contains" => (list.or(text), KindSet::ALL),
        "starts_with" | "ends_with" => (text, text),
        "join" => (text, list),
        "keys" | "values" | "merge" => (KindSet::OBJECT, KindSet::OBJECT),
        "length" => (text.or(list).or(KindSet::OBJECT), KindSet::ALL),
        "reverse" => (list.or(text), KindSet::ALL),
        _ => (KindSet::ALL, KindSet::ALL),
    };
    std::iter::once(first).chain(std::iter::repeat_n(second, count.saturating_sub(1)))
}

/// The type that a function gives that takes values alone.
fn plain(name: &str, given: &[ValueType]) -> ValueType {
    let Some(first) = given.first() else {
        return ValueType::any();
    };
    match name {
        "abs" | "ceil" | "floor" | "length" | "sum" => ValueType::number(),
        "avg" | "to_number" => ValueType::number().or_null(),
        "contains" | "starts_with" | "ends_with" => ValueType::boolean(),
        "join" | "to_string" | "type" => ValueType::string(),
        "keys" => ValueType::array(ValueType::string()),
        "values" => ValueType::array(first.member_values()),
        "max" | "min" => first.items().or_null(),
        "merge" => {
            let objects = given.iter().map(|one| one.clone().only(KindSet::OBJECT));
            let merged = objects.reduce(|before, next| before.overlaid(&next));
            merged.unwrap_or_else(ValueType::open_object)
        }
        "not_null" => {
            let all = given.iter().map(|one| one.clone().without_null());
            ValueType::union(all).or_null()
        }
        "reverse" => match first.kinds().meets(KindSet::STRING) {
            true => ValueType::array(first.items()).join(&ValueType::string()),
            false => ValueType::array(first.items()),
        },
        "sort" => ValueType::array(first.items()),
        "to_array" => {
            let others = first.clone().only(KindSet::ALL.without(KindSet::ARRAY));
            ValueType::array(first.items().join(&others))
        }
        _ => ValueType::any(),
    }
}
