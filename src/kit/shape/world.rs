//! The shape of `worlds/NAME.world.yaml`.

use super::FieldType::{
    Any, Each, Either, Flag, Integer, Keywords, List, Map, Note, Number, Pattern, Schema, Text,
};
use super::{
    DECLARED, DURATION, FieldType, KeyShape, MapShape, NAME, PARAMS, SECONDS, VERSION, WEBHOOKS,
    optional, required,
};

/// The whole file.
pub const WORLD: MapShape = MapShape::new(
    "the world",
    &[
        optional("budget", Map(&BUDGET)).doc("What its responders may use"),
        optional("description", Note).doc("For readers"),
        optional("edges", List(&Map(&EDGE)))
            .doc("Responders to relation.created, which come before all others"),
        optional("env", List(&Map(&DECLARED)))
            .doc("Variables that expressions mention as env.NAME; no secrets in responders"),
        optional("goal", List(&Map(&ENTRY))).doc("What the goal of a run becomes"),
        required("kind", Keywords(&["world"])).doc("Always world"),
        required("name", NAME).doc("The name of the file without .world.yaml"),
        optional("objects", Each(&Map(&OBJECT_TYPE))).doc("Types of objects, by name"),
        optional("params", Map(&PARAMS)).doc("What a run of this world on its own is given"),
        optional("relations", Each(&Map(&RELATION_TYPE))).doc("Types of relations, by name"),
        optional("responders", List(&Map(&RESPONDER))).doc("Rules that react to events, in order"),
        required("version", VERSION).doc("Semantic version, in quotes if it looks like a number"),
    ],
);

pub(crate) const BUDGET: MapShape = MapShape::new(
    "budget",
    &[
        optional("max_events", Integer(1, 1_000_000_000)).doc("World frames; 10000 by default"),
        optional("max_llm_cost_usd", Number(0.0, 1_000_000.0)).doc("10 by default"),
        optional("max_recursion_depth", Integer(0, 1_000_000))
            .doc("Causes between a frame and its root; 50 by default"),
        optional("max_wall_seconds", SECONDS).doc("Without waiting for people; 3600 by default"),
    ],
);

pub(crate) const OBJECT_TYPE: MapShape = MapShape::new(
    "the type",
    &[
        optional("description", Note).doc("For readers"),
        optional("label", Text)
            .doc("The member of the data that names an object where worlds are drawn and listed"),
        optional("schema", Schema).doc("JSON Schema of the data"),
    ],
);

const TYPES: FieldType = Either(&[ID, List(&ID)]);

pub(crate) const RELATION_TYPE: MapShape = MapShape::new(
    "the type",
    &[
        optional("description", Note).doc("For readers"),
        optional("from", TYPES).doc("The type of object it begins at, or several; any by default"),
        optional("schema", Schema).doc("JSON Schema of the data"),
        optional("to", TYPES).doc("The type of object it ends at, or several; any by default"),
    ],
);

/// The work of a responder; one of these.
pub(crate) const WORKS: [&str; 3] = ["emit", "ask", "run"];

const ID: FieldType = Pattern("^[A-Za-z_][A-Za-z0-9_-]{0,63}$");

const AFTER: KeyShape =
    optional("after", DURATION).doc("How long it waits between the event and its own look");
const ASK_KEY: KeyShape = optional("ask", Map(&ASK)).doc("One call of a model");
const CHANGED: KeyShape =
    optional("changed", List(&Text)).doc("Reacts only where one of these fields is patched");
const CONCURRENCY: KeyShape = optional("concurrency", Integer(1, 1_000_000))
    .doc("Calls or workflows in flight at once; any number by default")
    .with(&["ask", "run"]);
const DESCRIPTION: KeyShape = optional("description", Note).doc("For readers");
const EMIT: KeyShape =
    optional("emit", List(&Map(&ENTRY))).doc("Objects and relations, made in this order");
const FOR_EACH_KEY: KeyShape = optional("for_each", Map(&FOR_EACH)).doc("Once for each item");
const RESPONDER_NAME: KeyShape = required("name", ID).doc("Unique among the worlds of the kit");
const ON_ERROR: KeyShape = optional("on_error", Keywords(&["fail", "continue"]))
    .doc("Whether its failure fails the run; fail by default. Not beside run");
const PUBLISH_KEY: KeyShape = optional("publish", Map(&PUBLISH)).doc("Sent to subscribers");
const RUN_KEY: KeyShape = optional("run", Map(&RUN)).doc("A workflow of the kit, inline");
const THEN: KeyShape = optional("then", List(&Map(&THEN_ENTRY)))
    .doc("Made from the reply or the result")
    .with(&["ask", "run"]);
const WHEN: KeyShape = optional("when", Text).doc("Expression; where it is false nothing happens");
const WITH: KeyShape = optional("with", Each(&Map(&LOOKUP))).doc("Look-ups, by their names");

pub(crate) const RESPONDER: MapShape = MapShape::new(
    "the responder",
    &[
        AFTER,
        ASK_KEY,
        CHANGED,
        CONCURRENCY,
        DESCRIPTION,
        EMIT,
        FOR_EACH_KEY,
        RESPONDER_NAME,
        required("on", Either(&[Text, List(&Text)]))
            .doc("An event or several; \"*\" is every event"),
        ON_ERROR,
        PUBLISH_KEY,
        RUN_KEY,
        THEN,
        optional("type", TYPES)
            .doc("The type of the object or relation, or several; any by default"),
        WHEN,
        WITH,
    ],
)
.one_of(&[&WORKS]);

pub(crate) const EDGE: MapShape = MapShape::new(
    "the edge",
    &[
        AFTER,
        ASK_KEY,
        CONCURRENCY,
        DESCRIPTION,
        EMIT,
        FOR_EACH_KEY,
        RESPONDER_NAME,
        ON_ERROR,
        PUBLISH_KEY,
        RUN_KEY,
        THEN,
        required("type", TYPES).doc("The type of the relation, or several"),
        WHEN,
        WITH,
    ],
)
.one_of(&[&WORKS]);

/// The result of a look-up; one of these.
pub(crate) const FINDS: [&str; 4] = ["object", "objects", "first", "count"];

pub(crate) const LOOKUP: MapShape = MapShape::new(
    "the look-up",
    &[
        optional("count", ID).doc("How many objects of a type there are"),
        optional("first", ID).doc("The object of a type that was made first, or null"),
        optional("object", Text).doc("Template of an id: the object, or null"),
        optional("objects", ID).doc("The objects of a type, as they were made"),
        optional("where", Each(&VALUE))
            .doc("Fields and the templates they equal; {in: …} gives several values")
            .with(&["objects", "first", "count"]),
        optional("without", Map(&WITHOUT))
            .doc("And no such object exists for the item")
            .with(&["objects", "first", "count"]),
    ],
)
.one_of(&[&FINDS]);

pub(crate) const WITHOUT: MapShape = MapShape::new(
    "without",
    &[
        required("objects", ID).doc("The type of the objects that must not exist"),
        optional("where", Each(&VALUE)).doc("Fields and the templates they equal, over item"),
    ],
);

/// The largest number that a field is compared with, and the smallest below zero: up to here every
/// whole number is exact wherever it is read.
pub(crate) const MAX_COMPARED: f64 = 9_007_199_254_740_992.0;

const VALUE: FieldType = Either(&[
    Text,
    Flag,
    Number(-MAX_COMPARED, MAX_COMPARED),
    Map(&CONDITION),
]);

pub(crate) const CONDITION: MapShape = MapShape::new(
    "the condition",
    &[required("in", Either(&[Text, List(&Any)]))
        .doc("Template of an array, one value of which the field equals")],
);

pub(crate) const FOR_EACH: MapShape = MapShape::new(
    "for_each",
    &[
        optional("from", Text).doc("Expression that gives an array"),
        optional("items", List(&Any)).doc("Templates, each an item"),
    ],
)
.one_of(&[&["from", "items"]]);

/// The product of an entry; one of these.
pub(crate) const MAKES: [&str; 4] = ["object", "patch", "relation", "remove"];

const AS: KeyShape = optional("as", ID)
    .doc("Its name in the entries below, within the item")
    .with(&["object", "relation"]);
const IF_EXISTS: KeyShape = optional("if_exists", Keywords(&["keep", "patch"]))
    .doc("What becomes of an object with this key; keep by default")
    .with(&["key"]);
const KEY: KeyShape = optional("key", Text)
    .doc("Template: the object is made once for each value")
    .with(&["object"]);
const MAKES_OBJECT: KeyShape = optional("object", Map(&OBJECT)).doc("Makes an object");
const MAKES_PATCH: KeyShape = optional("patch", Map(&PATCH)).doc("Changes fields of an object");
const MAKES_RELATION: KeyShape = optional("relation", Map(&RELATION)).doc("Makes a relation");
const REMOVES: KeyShape = optional("remove", Map(&REMOVE)).doc("Removes a relation");

pub(crate) const ENTRY: MapShape = MapShape::new(
    "the entry",
    &[
        AS,
        IF_EXISTS,
        KEY,
        MAKES_OBJECT,
        MAKES_PATCH,
        MAKES_RELATION,
        REMOVES,
    ],
)
.one_of(&[&MAKES]);

pub(crate) const THEN_ENTRY: MapShape = MapShape::new(
    "the entry",
    &[
        AS,
        IF_EXISTS,
        KEY,
        MAKES_OBJECT,
        MAKES_PATCH,
        MAKES_RELATION,
        REMOVES,
        optional("when", Text).doc("Expression; where it is false nothing is made"),
    ],
)
.one_of(&[&MAKES]);

pub(crate) const OBJECT: MapShape = MapShape::new(
    "the object",
    &[
        optional("data", Each(&Any)).doc("Templates by the name of the field"),
        required("type", ID).doc("Its type"),
    ],
);

pub(crate) const PATCH: MapShape = MapShape::new(
    "the patch",
    &[
        required("data", Each(&Any)).doc("Templates by the name of the field"),
        required("id", Text).doc("Template of the id of an object"),
    ],
);

pub(crate) const RELATION: MapShape = MapShape::new(
    "the relation",
    &[
        optional("data", Each(&Any)).doc("Templates by the name of the field"),
        required("from", Text).doc("Template of the id of the object it begins at"),
        optional("id", Text).doc("Template of its id; otherwise type and both ends identify it"),
        required("to", Text).doc("Template of the id of the object it ends at"),
        required("type", ID).doc("Its type"),
    ],
);

pub(crate) const REMOVE: MapShape = MapShape::new(
    "remove",
    &[required("relation", Text).doc("Template of the id of a relation")],
);

pub(crate) const ASK: MapShape = MapShape::new(
    "ask",
    &[
        optional("max_tokens", Integer(1, 10_000_000)).doc("Of the reply; 1024 by default"),
        required("messages", List(&Map(&MESSAGE))).doc("The prompt of the model"),
        required("model", Pattern("\\S")).doc("A model group of gateway.yaml"),
        optional("output", Map(&ASK_OUTPUT))
            .doc("What reply.output is; otherwise reply.text alone"),
        optional("temperature", Number(0.0, 2.0)).doc("The group's by default"),
    ],
);

pub(crate) const ASK_OUTPUT: MapShape = MapShape::new(
    "the output of ask",
    &[required("schema", Schema).doc("JSON Schema of an object")],
);

pub(crate) const MESSAGE: MapShape = MapShape::new(
    "the message",
    &[
        required("content", Text).doc("Template"),
        required("role", Keywords(&["system", "user", "assistant"])).doc("Whose it is"),
    ],
);

pub(crate) const RUN: MapShape = MapShape::new(
    "run",
    &[
        optional("params", Each(&Any)).doc("Templates by the name of the param"),
        optional("webhooks", WEBHOOKS).doc("This half of the agreement to send webhooks"),
        required("workflow", Text).doc("Path of a workflow file"),
    ],
);

pub(crate) const PUBLISH: MapShape = MapShape::new(
    "publish",
    &[
        optional("payload", Any).doc("Template tree; {} by default"),
        required("topic", Text).doc("Template: what it is about"),
    ],
);
