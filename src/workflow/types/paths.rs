//! Parts of expressions as they were written: their text in messages, and where they begin.

use jmespath::ast::Ast;

/// The most names of a path that is spelled out.
const MAX_LEVELS: usize = 256;

/// Whose field is looked at: for the words of a finding.
#[derive(Clone, Copy)]
pub(super) enum PathOwner<'e> {
    /// None: it is a name.
    Names,
    /// An element of a list.
    Element,
    /// All params.
    Params,
    /// The value of a part of the expression.
    Node(&'e Ast),
}

/// The name that a message has for the value that an expression looks into.
pub(super) fn describe(owner: PathOwner<'_>) -> String {
    match owner {
        PathOwner::Names => "the value".to_owned(),
        PathOwner::Element => "an element".to_owned(),
        PathOwner::Params => "params".to_owned(),
        PathOwner::Node(ast) => path_of(ast).unwrap_or_else(|| "the value".to_owned()),
    }
}

/// A path as it is written, if it is one.
pub(super) fn path_of(ast: &Ast) -> Option<String> {
    let mut text = String::new();
    write_path(ast, &mut text, 0)?;
    Some(text)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a path is made of a few kinds of nodes, anything else makes it none"
)]
fn write_path(ast: &Ast, text: &mut String, level: usize) -> Option<()> {
    if level > MAX_LEVELS {
        return None;
    }
    match ast {
        Ast::Field { name, .. } => text.push_str(name),
        Ast::Identity { .. } => text.push('@'),
        Ast::Index { idx, .. } => text.push_str(&format!("[{idx}]")),
        Ast::Subexpr { lhs, rhs, .. } => {
            write_path(lhs, text, level + 1)?;
            if begins_with_a_field(rhs) {
                text.push('.');
            }
            write_path(rhs, text, level + 1)?;
        }
        _ => return None,
    }
    Some(())
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what begins with a field is one or has one on its left"
)]
pub(super) fn begins_with_a_field(ast: &Ast) -> bool {
    let mut at = ast;
    loop {
        match at {
            Ast::Field { .. } => return true,
            Ast::Subexpr { lhs, .. } | Ast::Projection { lhs, .. } => at = lhs,
            _ => return false,
        }
    }
}

/// The first name in a part of an expression and its offset, or where the part stands.
pub(super) fn first(ast: &Ast) -> (usize, &str) {
    let mut at = ast;
    loop {
        at = match at {
            Ast::Field { offset, name } => return (*offset, name),
            Ast::Subexpr { lhs, .. }
            | Ast::Projection { lhs, .. }
            | Ast::Or { lhs, .. }
            | Ast::And { lhs, .. }
            | Ast::Comparison { lhs, .. } => lhs,
            Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } => node,
            Ast::Function { offset, args, .. } => match args.first() {
                Some(one) if !matches!(one, Ast::Expref { .. }) => one,
                Some(_) | None => return (*offset, ""),
            },
            Ast::Identity { offset }
            | Ast::Literal { offset, .. }
            | Ast::Index { offset, .. }
            | Ast::Slice { offset, .. }
            | Ast::Not { offset, .. }
            | Ast::Condition { offset, .. }
            | Ast::Expref { offset, .. }
            | Ast::MultiList { offset, .. }
            | Ast::MultiHash { offset, .. } => return (*offset, ""),
        };
    }
}
