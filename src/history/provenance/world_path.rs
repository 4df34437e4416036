//! Objects and relations as a person types them: a whole id, an unambiguous beginning of one,
//! `TYPE[2]` for the third of a type, or `TYPE` where there is one of it alone.

use std::sync::Arc;

use ktsu_projections::world::{World, WorldObject, WorldRelation};

use super::story::path::FieldNotFoundError;

/// The fewest characters of an id that are worth a search.
const MIN_ID_CHARS: usize = 3;
/// The most names in an error.
const MAX_SUGGESTIONS: usize = 12;

/// The object or the relation that a path begins with.
pub(crate) enum Found {
    /// An object.
    Object(Arc<WorldObject>),
    /// A relation.
    Relation(Arc<WorldRelation>),
}

impl Found {
    /// Its id.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Object(object) => &object.id,
            Self::Relation(relation) => &relation.id,
        }
    }
}

/// The object or the relation that a path begins with, and the rest of the path.
pub(crate) fn find<'p>(
    world: &World,
    segments: &'p [String],
) -> Result<(Found, &'p [String]), FieldNotFoundError> {
    let Some((name, rest)) = segments.split_first() else {
        return Err(missing("", world));
    };
    if let Some(object) = world.object(name) {
        return Ok((Found::Object(Arc::clone(object)), rest));
    }
    if let Some(relation) = world.relation(name) {
        return Ok((Found::Relation(Arc::clone(relation)), rest));
    }
    if let Some((index, below)) = rest.split_first()
        && let Ok(index) = index.parse::<usize>()
    {
        let count = world.of_type(name).count();
        match world.of_type(name).nth(index) {
            Some(object) => return Ok((Found::Object(Arc::clone(object)), below)),
            None if count > 0 => return Err(beyond(world, name, (index, count))),
            None => {}
        }
    }
    let of_type: Vec<&Arc<WorldObject>> = world.of_type(name).take(MAX_SUGGESTIONS).collect();
    match of_type.as_slice() {
        [] => {}
        [one] => return Ok((Found::Object(Arc::clone(one)), rest)),
        many => {
            let ids = many.iter().map(|object| object.id.to_string());
            let message = format!("{name} is not the only one of its type; name one, as {name}[0]");
            return Err(FieldNotFoundError {
                unnamed: "several objects have that type".to_owned(),
                message,
                there: ids.collect(),
            });
        }
    }
    by_beginning(world, name).map(|found| (found, rest))
}

/// There are fewer objects of the type than an index says.
fn beyond(world: &World, name: &str, (index, count): (usize, usize)) -> FieldNotFoundError {
    let message = match count {
        1 => format!("there is no {name}[{index}]: {name}[0] is the only one of its type"),
        _ => {
            let last = count - 1;
            format!("there is no {name}[{index}]: there are {count}, {name}[0] to {name}[{last}]")
        }
    };
    let ids = world.of_type(name).take(MAX_SUGGESTIONS);
    FieldNotFoundError {
        unnamed: "the type has fewer objects".to_owned(),
        message,
        there: ids.map(|object| object.id.to_string()).collect(),
    }
}

/// The one whose id begins like this.
fn by_beginning(world: &World, name: &str) -> Result<Found, FieldNotFoundError> {
    if name.len() < MIN_ID_CHARS {
        return Err(missing(name, world));
    }
    let objects = world.objects().into_iter();
    let objects = objects.filter(|one| one.id.starts_with(name));
    let relations = world.relations().into_iter();
    let relations = relations.filter(|one| one.id.starts_with(name));
    let mut found: Vec<Found> = objects
        .map(|one| Found::Object(Arc::clone(one)))
        .chain(relations.map(|one| Found::Relation(Arc::clone(one))))
        .take(MAX_SUGGESTIONS)
        .collect();
    match (found.len(), found.pop()) {
        (1, Some(one)) => Ok(one),
        (0, _) | (_, None) => Err(missing(name, world)),
        (_, Some(last)) => {
            found.push(last);
            Err(FieldNotFoundError {
                unnamed: "several ids begin like that".to_owned(),
                message: format!("several ids begin with {name}"),
                there: found.iter().map(|one| one.id().to_owned()).collect(),
            })
        }
    }
}

fn missing(name: &str, world: &World) -> FieldNotFoundError {
    let mut kinds: Vec<String> = world
        .objects()
        .iter()
        .map(|object| object.kind.to_string())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.truncate(MAX_SUGGESTIONS);
    FieldNotFoundError {
        unnamed: "the world has no such object".to_owned(),
        message: format!("the world has no object or relation {name}"),
        there: kinds,
    }
}
