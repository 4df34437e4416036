//! The expressions and templates of a file: their types, and findings with their location.

use crate::read::KitReader;
use crate::text::bare;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_workflow::expression::{Expression, Vocabulary};
use ktsu_workflow::template::located;
use ktsu_workflow::types::ValueType;
use ktsu_workflow::types::infer::{
    Finding, FindingKind, InferenceBudget, NameTypes, infer, infer_element,
};

/// Reads expressions of one file.
pub(super) struct Expressions<'a> {
    pub(super) reader: KitReader<'a>,
    pub(super) names: NameTypes,
    pub(super) effort: &'a InferenceBudget,
    /// Whose names they are. Those of a responder stand among the steps of `names`.
    pub(super) vocabulary: Vocabulary,
}

impl Expressions<'_> {
    /// An expression over names, `{{ }}` around it or not. Syntax errors are reported elsewhere.
    pub(super) fn expression(&mut self, node: &YamlNode) -> ValueType {
        let YamlValue::Text(text) = &node.data else {
            return ValueType::any();
        };
        let (source, start) = bare(text);
        self.over_names(node, source, start)
    }

    /// An input of a transform, or an argument of `merge`: the id of a step may stand alone.
    pub(super) fn input(&mut self, node: &YamlNode) -> ValueType {
        if let YamlValue::Text(text) = &node.data
            && let (source, _) = bare(text)
            && crate::transform::is_step(source)
        {
            let step = self.names.steps.get(source);
            return step.cloned().unwrap_or_else(ValueType::any);
        }
        self.expression(node)
    }

    /// An expression on an element.
    pub(super) fn element(&mut self, node: &YamlNode, element: &ValueType) -> ValueType {
        let YamlValue::Text(text) = &node.data else {
            return ValueType::any();
        };
        let (source, start) = bare(text);
        let Ok(expression) = Expression::parse_element(source) else {
            return ValueType::any();
        };
        let (found, findings) = infer_element(&expression, element, self.effort);
        self.tell(node, start, findings);
        found
    }

    /// A tree of templates.
    pub(super) fn template(&mut self, node: &YamlNode) -> ValueType {
        match &node.data {
            YamlValue::Null => ValueType::null(),
            YamlValue::Bool(_) => ValueType::boolean(),
            YamlValue::Number(_) => ValueType::number(),
            YamlValue::Text(text) => self.text(node, text),
            YamlValue::List(items) => {
                let items: Vec<ValueType> = items.iter().map(|one| self.template(one)).collect();
                ValueType::array(ValueType::union(items))
            }
            YamlValue::Map(members) => {
                // Of a key that appears twice the first counts.
                let fields = members.iter().rev();
                let fields = fields.map(|(key, node)| (key.text.clone(), self.template(node)));
                ValueType::record(fields.collect::<Vec<_>>())
            }
        }
    }

    fn text(&mut self, node: &YamlNode, text: &str) -> ValueType {
        let (expressions, whole) = located(text);
        let mut last = ValueType::string();
        for (start, source) in expressions {
            last = self.over_names(node, source, start);
        }
        match whole {
            true => last,
            false => ValueType::string(),
        }
    }

    fn over_names(&mut self, node: &YamlNode, source: &str, start: usize) -> ValueType {
        let Ok(expression) = Expression::parse_with(source, self.vocabulary) else {
            return ValueType::any();
        };
        let (found, findings) = infer(&expression, &self.names, self.effort);
        self.tell(node, start, findings);
        found
    }

    fn tell(&mut self, node: &YamlNode, start: usize, findings: Vec<Finding>) {
        for finding in findings {
            let place = self
                .reader
                .spot(node, start + finding.offset, finding.length);
            let fault = Fault::new(code(finding.problem), place, finding.message);
            let fault = match finding.problem {
                FindingKind::NearlyDeclared => fault.warning(),
                FindingKind::UnknownField | FindingKind::NeverFits | FindingKind::NegatedPath => {
                    fault
                }
            };
            self.reader.fault(match finding.hint {
                Some(hint) => fault.hint(hint),
                None => fault,
            });
        }
    }
}

fn code(problem: FindingKind) -> FaultCode {
    match problem {
        FindingKind::UnknownField => FaultCode::UnknownField,
        FindingKind::NearlyDeclared => FaultCode::UndeclaredField,
        FindingKind::NeverFits => FaultCode::TypeMismatch,
        FindingKind::NegatedPath => FaultCode::NegatedPath,
    }
}
