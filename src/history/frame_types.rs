//! The types of frames that are wanted, by their exact names: `review.decided`.

use std::collections::BTreeSet;

use ktsu_codes::nearest;
use ktsu_ledger::Event;

/// The most types that are asked for at once.
const MAX_TYPES: usize = 32;
/// The most characters of an unknown type that an error repeats.
const MAX_SHOWN: usize = 64;
/// The most names that an error suggests.
const MAX_NAMED: usize = 6;
/// The prefix of the types of events that kits name.
const OF_KITS: &str = "x.";

/// Types of frames; all if there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameTypes(BTreeSet<String>);

/// The reason why a name is not one of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameTypesError {
    /// More than can be asked for.
    #[error("at most {MAX_TYPES} types can be given")]
    TooMany,
    /// There is no such type.
    #[error("there is no type of frames {given:?}")]
    Unknown {
        /// The given name, shortened.
        given: String,
        /// Types that may be meant.
        near: Vec<&'static str>,
    },
}

impl FrameTypesError {
    /// A suggestion of what to type instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooMany => None,
            Self::Unknown { near, .. } if near.is_empty() => None,
            Self::Unknown { near, .. } => Some(format!("did you mean {}?", near.join(", "))),
        }
    }
}

impl FrameTypes {
    /// Reads names; each text may have several, with commas.
    ///
    /// # Errors
    /// [`FrameTypesError`].
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, FrameTypesError> {
        let mut types = BTreeSet::new();
        for name in names.into_iter().flat_map(|text| text.split(',')) {
            if types.len() == MAX_TYPES {
                return Err(FrameTypesError::TooMany);
            }
            if !name.starts_with(OF_KITS) && !Event::KINDS.contains(&name) {
                return Err(FrameTypesError::Unknown {
                    given: name.chars().take(MAX_SHOWN).collect(),
                    near: near(name),
                });
            }
            types.insert(name.to_owned());
        }
        Ok(Self(types))
    }

    /// Returns `true` if frames of a type are wanted.
    pub fn has(&self, kind: &str) -> bool {
        self.0.is_empty() || self.0.contains(kind)
    }
}

/// The types whose group a text names, or else the one that is spelled most alike.
fn near(given: &str) -> Vec<&'static str> {
    let group = given.trim_end_matches(['*', '.']);
    let in_group = |kind: &&&str| {
        let rest = kind.strip_prefix(group);
        !group.is_empty() && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let known = Event::KINDS.iter();
    let found: Vec<&'static str> = known.filter(in_group).take(MAX_NAMED).copied().collect();
    match found.is_empty() {
        true => nearest(given, Event::KINDS.iter().copied())
            .into_iter()
            .collect(),
        false => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_exactly_and_unknown_ones_are_answered_with_near_names() {
        let types = FrameTypes::of(["review.decided,step.failed", "x.kit.seen"]).unwrap();
        for kind in ["review.decided", "step.failed", "x.kit.seen"] {
            assert!(types.has(kind), "{kind}");
        }
        assert!(!types.has("review.requested"));
        assert!(FrameTypes::default().has("step.failed"));
        for (given, near) in [
            ("review", vec!["review.requested", "review.decided"]),
            ("review.*", vec!["review.requested", "review.decided"]),
            ("reviewdecided", vec!["review.decided"]),
            ("step.faild", vec!["step.failed"]),
            ("", vec![]),
        ] {
            let refused = FrameTypes::of([given]).unwrap_err();
            let FrameTypesError::Unknown { near: found, .. } = &refused else {
                panic!("{refused}");
            };
            let sorted = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(sorted(found), sorted(&near), "{given}");
        }
        let many = ["x.a"; 2].join(",");
        assert!(FrameTypes::of([many.as_str()]).is_ok());
        let many: Vec<String> = (0..=MAX_TYPES).map(|at| format!("x.{at}")).collect();
        let refused = FrameTypes::of(many.iter().map(String::as_str));
        assert_eq!(refused, Err(FrameTypesError::TooMany));
    }
}
