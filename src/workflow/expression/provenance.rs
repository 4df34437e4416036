//! Values with provenance: where they were computed from, and what only influenced the decision.
//!
//! A value's **source** is what it was computed from: change that and the value changes. What only
//! decided whether the value was computed, or which of several was chosen, is kept separately, as
//! **chosen by**. A path includes everything below it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use jmespath::{Rcvar, Variable};

use super::evaluated::EvaluatedValue;
use super::value::to_value;

/// A place in a frame: its number, and a JSON pointer into its data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramePointer {
    /// The frame.
    pub frame: u64,
    /// JSON pointer into its data.
    pub path: String,
}

impl FramePointer {
    /// A place.
    pub fn new(frame: u64, path: impl Into<String>) -> Self {
        Self {
            frame,
            path: path.into(),
        }
    }

    /// The place of a member or an element.
    pub fn below(&self, segment: &str) -> Self {
        let segment = segment.replace('~', "~0").replace('/', "~1");
        Self::new(self.frame, format!("{}/{segment}", self.path))
    }

    /// Returns `true` if another place is this one or lies in it.
    pub fn contains(&self, other: &Self) -> bool {
        let rest = other.path.strip_prefix(self.path.as_str());
        self.frame == other.frame
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A set of places, made of others that are shared: each step of a long run adds its own to those of
/// all steps before it, and holds no copy of them.
#[derive(Clone, Default)]
pub struct Provenance(Option<Rc<Union>>);

/// Some places, and other sets; never nothing at all.
#[derive(Default)]
struct Union {
    own: BTreeSet<FramePointer>,
    parts: Vec<Rc<Union>>,
}

impl Drop for Union {
    /// A chain of sets is as long as a run, and would be dropped link by link on the stack.
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.parts);
        while let Some(part) = open.pop() {
            if let Some(mut last) = Rc::into_inner(part) {
                open.append(&mut last.parts);
            }
        }
    }
}

impl Provenance {
    /// One place.
    pub fn at(place: FramePointer) -> Self {
        Self::of(BTreeSet::from([place]), Vec::new())
    }

    fn of(own: BTreeSet<FramePointer>, parts: Vec<Rc<Union>>) -> Self {
        match (own.is_empty(), parts.as_slice()) {
            (true, []) => Self(None),
            (true, [one]) => Self(Some(Rc::clone(one))),
            _ => Self(Some(Rc::new(Union { own, parts }))),
        }
    }

    /// The places, in order.
    pub fn iter(&self) -> impl Iterator<Item = &FramePointer> {
        let mut found: BTreeSet<&FramePointer> = BTreeSet::new();
        self.each(&mut |part| found.extend(&part.own));
        found.into_iter()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// These and others.
    pub fn and(&self, other: &Self) -> Self {
        union([self, other])
    }

    /// Returns `true` if one of them holds a place.
    pub fn covers(&self, place: &FramePointer) -> bool {
        let ends = place.path.match_indices('/').map(|(at, _)| at);
        let around = ends.chain([place.path.len()]).map(|end| {
            let path = place.path.get(..end).unwrap_or_default();
            FramePointer::new(place.frame, path)
        });
        let around: Vec<FramePointer> = around.collect();
        let mut found = false;
        self.each(&mut |part| {
            found = found || around.iter().any(|place| part.own.contains(place));
        });
        found
    }

    /// The same places in one set, for whoever asks about many of them.
    pub fn flat(&self) -> Self {
        self.iter().cloned().collect()
    }

    /// Every set that this one is made of, each once.
    fn each<'m>(&'m self, take: &mut dyn FnMut(&'m Union)) {
        each_once(self.0.iter().collect(), take);
    }
}

/// The places of many sets, each of which is looked at once, however many share it.
#[derive(Default)]
pub struct GatheredPlaces {
    places: BTreeSet<FramePointer>,
    /// The sets that others share: held, so that their addresses stay their own.
    seen: HashMap<*const Union, Rc<Union>>,
}

impl GatheredPlaces {
    /// Takes a set, and gives the places that were not there before, in order.
    pub fn add(&mut self, set: &Provenance) -> Vec<FramePointer> {
        let mut added = Vec::new();
        let mut open: Vec<&Rc<Union>> = set.0.iter().collect();
        while let Some(part) = open.pop() {
            let shared = Rc::strong_count(part) > 1;
            if shared
                && self
                    .seen
                    .insert(Rc::as_ptr(part), Rc::clone(part))
                    .is_some()
            {
                continue;
            }
            let new = part.own.iter().filter(|place| !self.places.contains(place));
            let new: Vec<FramePointer> = new.cloned().collect();
            self.places.extend(new.iter().cloned());
            added.extend(new);
            open.extend(&part.parts);
        }
        added.sort_unstable();
        added
    }

    /// All places, in order.
    pub fn iter(&self) -> impl Iterator<Item = &FramePointer> {
        self.places.iter()
    }
}

/// These sets and all that they are made of: each once, however many share it, and without a stack.
fn each_once<'m>(mut open: Vec<&'m Rc<Union>>, take: &mut dyn FnMut(&'m Union)) {
    let mut seen: HashSet<*const Union> = HashSet::new();
    while let Some(part) = open.pop() {
        if seen.insert(Rc::as_ptr(part)) {
            take(part);
            open.extend(&part.parts);
        }
    }
}

/// The places, as of any set: a derived form would follow the parts on the stack, and show what is
/// shared as often as it is.
impl fmt::Debug for Provenance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<FramePointer> for Provenance {
    fn from_iter<I: IntoIterator<Item = FramePointer>>(places: I) -> Self {
        Self::of(places.into_iter().collect(), Vec::new())
    }
}

/// As many places as are rather put together than shared.
const FEW: usize = 4;

/// The union of several sets.
pub fn union<'a>(sets: impl IntoIterator<Item = &'a Provenance>) -> Provenance {
    let mut own: BTreeSet<FramePointer> = BTreeSet::new();
    let mut parts: Vec<Rc<Union>> = Vec::new();
    let mut seen: HashSet<*const Union> = HashSet::new();
    for part in sets.into_iter().filter_map(|set| set.0.as_ref()) {
        if !seen.insert(Rc::as_ptr(part)) {
            continue;
        }
        match part.parts.is_empty() && part.own.len() <= FEW {
            true => own.extend(part.own.iter().cloned()),
            false => parts.push(Rc::clone(part)),
        }
    }
    // What a part has already is not told again.
    if let [one] = parts.as_slice() {
        own.retain(|place| !one.own.contains(place));
    }
    Provenance::of(own, parts)
}

/// A value, what it was made of, and what chose it.
#[derive(Debug, Clone)]
pub struct Tracked {
    value: Rcvar,
    made: TrackedOrigin,
    chosen: Provenance,
}

#[derive(Debug, Clone)]
enum TrackedOrigin {
    /// It stands there as it is, with everything below it.
    At(FramePointer),
    /// It was computed as one from these; a literal from none.
    Of(Provenance),
    /// Elements of their own; the marks say what made the list as such.
    List(Rc<Vec<Tracked>>, Provenance),
    /// Members of their own.
    Map(Rc<BTreeMap<String, Tracked>>, Provenance),
}

impl Tracked {
    /// A value that is recorded at a place.
    pub fn recorded(place: FramePointer, value: Rcvar) -> Self {
        Self::made(value, TrackedOrigin::At(place))
    }

    fn made(value: Rcvar, made: TrackedOrigin) -> Self {
        Self {
            value,
            made,
            chosen: Provenance::default(),
        }
    }

    /// The value as a tree.
    pub fn to_value(&self) -> serde_json::Value {
        to_value(&self.value)
    }

    /// The place where it stands as it is, if it was not computed.
    pub fn place(&self) -> Option<&FramePointer> {
        match &self.made {
            TrackedOrigin::At(place) => Some(place),
            TrackedOrigin::Of(_) | TrackedOrigin::List(..) | TrackedOrigin::Map(..) => None,
        }
    }

    fn own_item(&self, at: usize) -> Option<Self> {
        let value = self.value.as_array()?.get(at)?.clone();
        Some(match &self.made {
            TrackedOrigin::List(items, _) => items.get(at)?.clone(),
            TrackedOrigin::At(place) => Self::recorded(place.below(&at.to_string()), value),
            TrackedOrigin::Of(source) | TrackedOrigin::Map(_, source) => {
                Self::computed(value, source.clone())
            }
        })
    }

    fn own_member(&self, name: &str) -> Option<Self> {
        let value = self.value.as_object()?.get(name)?.clone();
        Some(match &self.made {
            TrackedOrigin::Map(members, _) => members.get(name)?.clone(),
            TrackedOrigin::At(place) => Self::recorded(place.below(name), value),
            TrackedOrigin::Of(marks) | TrackedOrigin::List(_, marks) => {
                Self::computed(value, marks.clone())
            }
        })
    }

    /// The value at a JSON pointer, chosen by what chose everything around it.
    pub fn find(&self, pointer: &str) -> Option<Self> {
        let mut at = self.clone();
        for segment in pointer.split('/').skip(1) {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            at = match at.value.as_array() {
                Some(_) => at.item(segment.parse().ok()?)?,
                None => at.member(&segment)?,
            };
        }
        Some(at)
    }

    /// The same value as another that is known to be equal in part: where it differs (a default
    /// that was filled in, a text made of a number) the other's value is taken as computed.
    pub fn aligned(&self, wanted: &Rcvar) -> Self {
        if to_value(wanted) == self.to_value() {
            return self.clone();
        }
        let aligned = match (&**wanted, self.members(), self.items()) {
            (Variable::Object(values), Some(members), _) => Self::map(
                values
                    .iter()
                    .map(|(name, value)| {
                        let made = members.get(name);
                        let made = made.map_or_else(
                            || Self::literal(value.clone()).chosen_by(&self.source()),
                            |member| member.aligned(value),
                        );
                        (name.clone(), made)
                    })
                    .collect(),
                self.source(),
            ),
            (Variable::Array(values), _, Some(items)) if values.len() == items.len() => Self::list(
                items
                    .iter()
                    .zip(values)
                    .map(|(item, value)| item.aligned(value))
                    .collect(),
                self.source(),
            ),
            _ => Self::computed(wanted.clone(), self.sources()),
        };
        aligned.chosen_by(&self.chosen)
    }
}

impl EvaluatedValue for Tracked {
    type Provenance = Provenance;

    fn union<'a>(sets: impl IntoIterator<Item = &'a Provenance>) -> Provenance {
        union(sets)
    }

    fn is_empty(set: &Provenance) -> bool {
        set.is_empty()
    }

    fn trace(find: impl FnOnce() -> Provenance) -> Provenance {
        find()
    }

    fn computed(value: Rcvar, sources: Provenance) -> Self {
        Self::made(value, TrackedOrigin::Of(sources))
    }

    fn list(items: Vec<Self>, source: Provenance) -> Self {
        let value = items.iter().map(|item| item.value.clone()).collect();
        let value = Rcvar::new(Variable::Array(value));
        Self::made(value, TrackedOrigin::List(Rc::new(items), source))
    }

    fn map(members: BTreeMap<String, Self>, source: Provenance) -> Self {
        let value = members
            .iter()
            .map(|(name, member)| (name.clone(), member.value.clone()))
            .collect();
        let value = Rcvar::new(Variable::Object(value));
        Self::made(value, TrackedOrigin::Map(Rc::new(members), source))
    }

    fn chosen_by(mut self, more: &Provenance) -> Self {
        self.chosen = self.chosen.and(more);
        self
    }

    fn value(&self) -> &Rcvar {
        &self.value
    }

    fn chosen(&self) -> &Provenance {
        &self.chosen
    }

    fn source(&self) -> Provenance {
        match &self.made {
            TrackedOrigin::At(place) => Provenance::at(place.clone()),
            TrackedOrigin::Of(source)
            | TrackedOrigin::List(_, source)
            | TrackedOrigin::Map(_, source) => source.clone(),
        }
    }

    /// As deep as a value is nested, which is bounded where values are read.
    fn visit_parts(&self, visit: &mut dyn FnMut(&Self)) {
        visit(self);
        match &self.made {
            TrackedOrigin::At(_) | TrackedOrigin::Of(_) => {}
            TrackedOrigin::List(items, _) => items.iter().for_each(|item| item.visit_parts(visit)),
            TrackedOrigin::Map(members, _) => members
                .values()
                .for_each(|member| member.visit_parts(visit)),
        }
    }

    fn items(&self) -> Option<Cow<'_, [Self]>> {
        let values = self.value.as_array()?;
        Some(match &self.made {
            TrackedOrigin::List(items, _) => Cow::Borrowed(items.as_slice()),
            _ => (0..values.len())
                .filter_map(|at| self.own_item(at))
                .collect(),
        })
    }

    fn members(&self) -> Option<Cow<'_, BTreeMap<String, Self>>> {
        let values = self.value.as_object()?;
        if let TrackedOrigin::Map(members, _) = &self.made {
            return Some(Cow::Borrowed(members));
        }
        let names = values.keys();
        let members = names.filter_map(|name| Some((name.clone(), self.own_member(name)?)));
        Some(Cow::Owned(members.collect()))
    }

    fn item(&self, at: usize) -> Option<Self> {
        Some(self.own_item(at)?.chosen_by(&self.chosen))
    }

    fn member(&self, name: &str) -> Option<Self> {
        Some(self.own_member(name)?.chosen_by(&self.chosen))
    }
}

/// The number of things that several sets keep between them: places, sets, and the links from one
/// to another.
pub fn retained_size<'a>(sets: impl IntoIterator<Item = &'a Provenance>) -> usize {
    let mut kept = 0;
    let sets = sets.into_iter().filter_map(|set| set.0.as_ref());
    each_once(sets.collect(), &mut |part| {
        kept += 1 + part.own.len() + part.parts.len();
    });
    kept
}

#[cfg(test)]
mod tests;
