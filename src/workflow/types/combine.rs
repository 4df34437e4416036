//! Combinations of types: union, intersection, and merging.

use std::sync::Arc;

use super::{KindSet, Member, Members, ValueType};

impl ValueType {
    /// The values that are in either.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        let items = match (has(self, KindSet::ARRAY), has(other, KindSet::ARRAY)) {
            (true, true) => self
                .items
                .as_ref()
                .zip(other.items.as_ref())
                .map(join_items),
            (true, false) => self.items.clone(),
            (false, _) => other.items.clone(),
        };
        let members = match (has(self, KindSet::OBJECT), has(other, KindSet::OBJECT)) {
            (true, true) => self
                .members
                .as_ref()
                .zip(other.members.as_ref())
                .map(join_members),
            (true, false) => self.members.clone(),
            (false, _) => other.members.clone(),
        };
        Self::of_kinds(self.kinds.or(other.kinds))
            .with_items(items)
            .with_members(members)
    }

    /// The values that are in both, at the least.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let items = either(&self.items, &other.items, |a, b| Arc::new(a.meet(b)));
        let members = either(&self.members, &other.members, |a, b| {
            Arc::new(meet_members(a, b))
        });
        Self::of_kinds(self.kinds.and(other.kinds))
            .with_items(items)
            .with_members(members)
    }

    /// Objects of this type with the fields of the other laid over them, one level deep.
    pub fn overlaid(&self, later: &Self) -> Self {
        self.laid_under(later, &|_, later| later.clone())
    }

    /// As [`Self::overlaid`], where `both` says what becomes of a field that both have.
    fn laid_under(&self, later: &Self, both: &dyn Fn(&Self, &Self) -> Self) -> Self {
        let (Some(before), Some(next)) = (self.members(), later.members()) else {
            return Self::open_object();
        };
        let names = before.named.keys().chain(next.named.keys());
        let member = |name: &String| match (before.named.get(name), next.named.get(name)) {
            (Some(old), Some(new)) => {
                let mut value = both(&old.value, &new.value);
                if !new.always {
                    value = value.join(&old.value);
                }
                // An object without it leaves the new one alone.
                if !old.always {
                    value = value.join(&new.value);
                }
                Member {
                    value,
                    always: old.always || new.always,
                }
            }
            (Some(old), None) => Member {
                value: match &next.rest {
                    Some(rest) => old.value.join(&both(&old.value, rest)).join(rest),
                    None => old.value.clone(),
                },
                always: old.always,
            },
            (None, Some(new)) => Member {
                value: match &before.rest {
                    Some(rest) => new.value.join(&both(rest, &new.value)).join(rest),
                    None => new.value.clone(),
                },
                always: new.always,
            },
            (None, None) => Member {
                value: Self::any(),
                always: false,
            },
        };
        let named = names.map(|name| (name.clone(), member(name)));
        let rest = either(&before.rest, &next.rest, |a, b| a.join(b).join(&both(a, b)));
        Self::object(Members {
            named: named.collect(),
            rest,
        })
    }

    /// The value that the op `merge` makes of a value and a later one that is not null: objects
    /// merge at every level, arrays are joined, anything else is replaced.
    pub fn merged(&self, later: &Self) -> Self {
        let mut merged = later.clone().only(KindSet::ALL.without(PAIRED));
        for kind in [KindSet::ARRAY, KindSet::OBJECT] {
            if !has(later, kind) {
                continue;
            }
            if has(self, kind) {
                let both = match kind {
                    KindSet::ARRAY => Self::array(self.items().join(&later.items())),
                    _ => self.laid_under(later, &Self::merged),
                };
                merged = merged.join(&both);
            }
            if !self.kinds.without(kind).is_none() {
                merged = merged.join(&later.clone().only(kind));
            }
        }
        merged
    }
}

/// The kinds that merge with their own.
const PAIRED: KindSet = KindSet(KindSet::ARRAY.0 | KindSet::OBJECT.0);

/// Both as one, or the one that is there.
fn either<T: Clone>(a: &Option<T>, b: &Option<T>, both: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    }
}

fn has(of: &ValueType, kind: KindSet) -> bool {
    of.kinds.meets(kind)
}

fn join_items((a, b): (&Arc<ValueType>, &Arc<ValueType>)) -> Arc<ValueType> {
    if Arc::ptr_eq(a, b) {
        return Arc::clone(a);
    }
    Arc::new(a.join(b))
}

fn join_members((a, b): (&Arc<Members>, &Arc<Members>)) -> Arc<Members> {
    if Arc::ptr_eq(a, b) {
        return Arc::clone(a);
    }
    let alone = |member: &Member, rest: Option<&ValueType>| Member {
        value: match rest {
            Some(rest) => member.value.join(rest),
            None => member.value.clone(),
        },
        always: false,
    };
    let mut named = a.named.clone();
    for (name, member) in &mut named {
        *member = match b.named.get(name) {
            Some(other) => Member {
                value: member.value.join(&other.value),
                always: member.always && other.always,
            },
            None => alone(member, b.rest.as_ref()),
        };
    }
    for (name, member) in &b.named {
        if !named.contains_key(name) {
            named.insert(name.clone(), alone(member, a.rest.as_ref()));
        }
    }
    let rest = either(&a.rest, &b.rest, ValueType::join);
    Arc::new(Members { named, rest })
}

fn meet_members(a: &Members, b: &Members) -> Members {
    let mut named = std::collections::BTreeMap::new();
    for name in a.named.keys().chain(b.named.keys()) {
        if named.contains_key(name) {
            continue;
        }
        let member = match (a.named.get(name), b.named.get(name)) {
            (Some(one), Some(other)) => Some(Member {
                value: one.value.meet(&other.value),
                always: one.always || other.always,
            }),
            (Some(one), None) => against(one, b.rest.as_ref()),
            (None, Some(one)) => against(one, a.rest.as_ref()),
            (None, None) => None,
        };
        if let Some(member) = member {
            named.insert(name.clone(), member);
        }
    }
    let rest = a.rest.as_ref().zip(b.rest.as_ref());
    Members {
        named,
        rest: rest.map(|(a, b)| a.meet(b)),
    }
}

/// A field that the other side knows only as any other field, if it may have others.
fn against(member: &Member, rest: Option<&ValueType>) -> Option<Member> {
    match rest {
        Some(rest) => Some(Member {
            value: member.value.meet(rest),
            always: member.always,
        }),
        // One that must be there and cannot: no object fits, which `misfit` tells.
        None => member.always.then(|| Member {
            value: ValueType::never(),
            always: true,
        }),
    }
}
