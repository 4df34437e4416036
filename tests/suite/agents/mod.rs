//! Agent steps from outside: the whole program, real HTTP to a scripted provider of models.

mod builtin;
mod cached;
mod contract;
mod early;
mod fan_out;
mod kills;
mod load;
mod outcomes;
mod policy;
mod reflect;
mod replaced;
mod servers;
mod several;
mod spending;
mod supervision;
mod three;

use serde_json::{Value, json};

use crate::support::model::{self, KEY, Model};
use crate::support::{KitDir, Lab};

/// An engine with agents that ask this model.
async fn lab(model: &Model, workflows: &[(&str, &str)]) -> (KitDir, Lab) {
    let kit = model::kit(model, workflows);
    let lab = Lab::new(&kit, &[KEY]).await;
    (kit, lab)
}

/// A step of an envelope.
fn step<'a>(envelope: &'a Value, id: &str) -> &'a Value {
    let steps = envelope["steps"].as_array().unwrap();
    let found = steps.iter().find(|step| step["id"] == id);
    found.unwrap_or_else(|| panic!("no step {id} in {envelope:#}"))
}

/// The frames of a type.
fn of_type(frames: &[Value], kind: &str) -> Vec<Value> {
    let found = frames.iter().filter(|frame| frame["type"] == kind);
    found.cloned().collect()
}

/// A body that makes the echoing model say this.
fn saying(said: &Value) -> Value {
    json!({"msg": said.to_string()})
}

/// Params of a workflow that takes a text.
const MSG: &str =
    "params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}";
