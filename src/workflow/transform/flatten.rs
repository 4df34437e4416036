//! `flatten: {}`: one level of nesting less.

use jmespath::{Rcvar, Variable};

use super::array;
use crate::expression::EvaluationError;

/// Elements that are no arrays stay, null too; what is no array passes unchanged.
pub(super) fn apply(value: &Rcvar) -> Result<Rcvar, EvaluationError> {
    let Some(items) = value.as_array() else {
        return Ok(value.clone());
    };
    let mut flat = Vec::new();
    for item in items {
        match &**item {
            Variable::Array(inner) => flat.extend(inner.iter().cloned()),
            Variable::Null
            | Variable::Bool(_)
            | Variable::Number(_)
            | Variable::String(_)
            | Variable::Object(_)
            | Variable::Expref(_) => flat.push(item.clone()),
        }
    }
    Ok(array(flat))
}
