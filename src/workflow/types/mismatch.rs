//! The check whether a value of a type can ever be what is required.

use super::{KindSet, Member, Members, ValueType};

/// The reason why no value of one type is one of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMismatch {
    /// JSON pointer into the value.
    pub pointer: String,
    /// A lower-case fragment.
    pub message: String,
}

/// The reason why nothing that is `given` is what is `wanted`; `None` if some of it may be, or if
/// it is not known. A value that is null, or is never there, is not judged: that is reported where
/// it comes from.
pub fn find_mismatch(given: &ValueType, wanted: &ValueType) -> Option<TypeMismatch> {
    let mut at = String::new();
    look(given, wanted, &mut at).map(|message| TypeMismatch {
        pointer: at,
        message,
    })
}

/// Leaves `at` where the misfit is.
fn look(given: &ValueType, wanted: &ValueType, at: &mut String) -> Option<String> {
    if !given.is_informative() || wanted.is_never() {
        return None;
    }
    if !given.kinds().meets(wanted.kinds()) {
        let words = format!("expected {}, got {}", wanted.words(), given.words());
        return Some(words);
    }
    // Only where each of its values is an object can one of these be missing something.
    if given.kinds() != KindSet::OBJECT {
        return None;
    }
    let (have, want) = (given.members()?, wanted.members()?);
    absent(have, want)
        .or_else(|| unexpected(have, want))
        .or_else(|| below(have, want, at))
}

fn absent(have: &Members, want: &Members) -> Option<String> {
    let required = want.named.iter().filter(|(_, member)| member.always);
    let mut absent = required.filter(|(name, _)| match have.named.get(*name) {
        Some(member) => member.value.is_never(),
        None => have.rest.is_none(),
    });
    let (name, _) = absent.next()?;
    Some(format!("missing required field: {name}"))
}

fn unexpected(have: &Members, want: &Members) -> Option<String> {
    if want.rest.is_some() {
        return None;
    }
    let given = have.named.iter();
    let mut given = given.filter(|(_, member)| member.always && !member.value.is_never());
    let (name, _) = given.find(|(name, _)| !want.named.contains_key(*name))?;
    Some(format!("unexpected field: {name}"))
}

fn below(have: &Members, want: &Members, at: &mut String) -> Option<String> {
    let given = have.named.iter();
    for (name, member) in given.filter(|(_, member)| member.always) {
        let wanted = match (want.named.get(name), &want.rest) {
            (Some(Member { value, .. }), _) | (None, Some(value)) => value,
            (None, None) => continue,
        };
        let length = at.len();
        at.push('/');
        at.push_str(&name.replace('~', "~0").replace('/', "~1"));
        if let Some(words) = look(&member.value, wanted, at) {
            return Some(words);
        }
        at.truncate(length);
    }
    None
}
