//! Deserialization with error locations, worded as schema violations. Stricter than serde: a struct
//! is not read from an array by position. An integer may be written as `1.0`, and arbitrary JSON
//! inside stays as it was written.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer as _, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::FieldViolation;

/// Reads a value at a JSON pointer of a body.
///
/// # Errors
/// The first mismatch.
pub fn read<'v, T: Deserialize<'v>>(value: &'v Value, at: &str) -> Result<T, FieldViolation> {
    let top = JsonPath::Top(at);
    let read = T::deserialize(ValueAt { value, place: &top });
    read.map_err(|misfit| misfit.into_violation(&top))
}

/// The first mismatch of a value, with its place.
pub fn in_words(violation: &FieldViolation) -> String {
    match violation.path.as_str() {
        "" => violation.message.clone(),
        path => format!("{path}: {}", violation.message),
    }
}

/// A number as an integer, if JSON Schema takes it for one that is not negative.
pub fn integer(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    let fits = number.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&number);
    fits.then_some(number as u64)
}

/// The type of a value, in the words of JSON Schema.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The path to a value, as a linked list to the root. Values are at most as deep as a body.
enum JsonPath<'p> {
    Top(&'p str),
    Member(&'p JsonPath<'p>, &'p str),
    Element(&'p JsonPath<'p>, usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(at) => out.write_str(at),
            Self::Member(around, name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                write!(out, "{around}/{name}")
            }
            Self::Element(around, index) => write!(out, "{around}/{index}"),
        }
    }
}

/// A mismatch. Errors raised by a type itself have no location at first.
#[derive(Debug)]
struct SchemaMismatch {
    path: Option<String>,
    rule: &'static str,
    message: String,
}

impl SchemaMismatch {
    fn new(rule: &'static str, message: String) -> Self {
        Self {
            path: None,
            rule,
            message,
        }
    }

    fn at(mut self, place: &JsonPath<'_>) -> Self {
        self.path.get_or_insert_with(|| place.to_string());
        self
    }

    fn into_violation(self, place: &JsonPath<'_>) -> FieldViolation {
        FieldViolation {
            path: self.path.unwrap_or_else(|| place.to_string()),
            message: self.message,
            rule: self.rule.to_owned(),
        }
    }
}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for SchemaMismatch {}

/// Kinds are checked before a type sees a value, so these are the only errors a type can raise.
impl de::Error for SchemaMismatch {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::new("type", "is not of a form that is known".to_owned())
    }

    fn missing_field(field: &'static str) -> Self {
        let message = format!("missing required field: {field}");
        Self::new("required", message)
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::new("additionalProperties", format!("unknown member {field:?}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        let message = format!("expected one of {}", expected.join(", "));
        Self::new("enum", message)
    }
}

/// A value at its place.
#[derive(Clone, Copy)]
struct ValueAt<'v, 'p> {
    value: &'v Value,
    place: &'p JsonPath<'p>,
}

impl<'v> ValueAt<'v, '_> {
    fn type_mismatch(&self, wanted: &str) -> SchemaMismatch {
        let message = format!("expected {wanted}, got {}", kind_of(self.value));
        SchemaMismatch::new("type", message).at(self.place)
    }

    fn text(&self) -> Result<&'v str, SchemaMismatch> {
        self.value
            .as_str()
            .ok_or_else(|| self.type_mismatch("string"))
    }

    fn members(&self) -> Result<&'v Map<String, Value>, SchemaMismatch> {
        self.value
            .as_object()
            .ok_or_else(|| self.type_mismatch("object"))
    }

    fn number(&self) -> Result<&'v Number, SchemaMismatch> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.type_mismatch("integer")),
        }
    }

    /// A whole number that is not negative, and at most this.
    fn whole(&self, most: u64) -> Result<u64, SchemaMismatch> {
        self.number()?;
        let whole = integer(self.value).filter(|whole| *whole <= most);
        whole.ok_or_else(|| {
            let message = format!("expected a whole number, 0 to {most}");
            SchemaMismatch::new("type", message).at(self.place)
        })
    }

    fn signed(&self) -> Result<i64, SchemaMismatch> {
        let number = self.number()?.as_i64();
        let number = number.or_else(|| i64::try_from(integer(self.value)?).ok());
        number.ok_or_else(|| self.type_mismatch("integer"))
    }

    fn map<V: Visitor<'v>>(&self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        let members = Members {
            left: self.members()?.iter(),
            last: None,
            place: self.place,
        };
        visitor.visit_map(members).map_err(|one| one.at(self.place))
    }
}

impl<'v> Deserializer<'v> for ValueAt<'v, '_> {
    type Error = SchemaMismatch;

    /// Of anything at all: a type that looks at it decides.
    fn deserialize_any<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        let plain = self.value.deserialize_any(visitor);
        plain.map_err(|_| self.type_mismatch("another form"))
    }

    fn deserialize_bool<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        let flag = self
            .value
            .as_bool()
            .ok_or_else(|| self.type_mismatch("boolean"))?;
        visitor.visit_bool(flag)
    }

    fn deserialize_u32<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        visitor.visit_u64(self.whole(u64::from(u32::MAX))?)
    }

    fn deserialize_u64<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        visitor.visit_u64(self.whole(u64::MAX)?)
    }

    fn deserialize_f64<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        let number = self.value.as_f64();
        visitor.visit_f64(number.ok_or_else(|| self.type_mismatch("number"))?)
    }

    fn deserialize_i64<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_str<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        let items = self
            .value
            .as_array()
            .ok_or_else(|| self.type_mismatch("array"))?;
        visitor.visit_seq(Elements {
            left: items.iter().enumerate(),
            place: self.place,
        })
    }

    fn deserialize_map<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, SchemaMismatch> {
        self.map(visitor)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        self.map(visitor)
    }

    /// JSON that is kept as text is one of these, and any value will do for it.
    fn deserialize_newtype_struct<V: Visitor<'v>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        let plain = self.value.deserialize_newtype_struct(name, visitor);
        plain.map_err(|_| self.type_mismatch("another form"))
    }

    fn deserialize_enum<V: Visitor<'v>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        let (name, value) = match self.value {
            Value::String(name) => (name, None),
            Value::Object(members) if members.len() == 1 => {
                let (name, value) = members
                    .iter()
                    .next()
                    .ok_or_else(|| self.type_mismatch("a member"))?;
                (name, Some(value))
            }
            _ => {
                return Err(
                    <SchemaMismatch as de::Error>::unknown_variant("", names).at(self.place)
                );
            }
        };
        let place = self.place;
        let of = Variant { name, value, place };
        visitor.visit_enum(of).map_err(|one| one.at(place))
    }

    fn deserialize_identifier<V: Visitor<'v>>(
        self,
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'v>>(
        self,
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'v>>
        i8 i16 i32 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

struct Elements<'v, 'p> {
    left: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    place: &'p JsonPath<'p>,
}

impl<'v> SeqAccess<'v> for Elements<'v, '_> {
    type Error = SchemaMismatch;

    fn next_element_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, SchemaMismatch> {
        let Some((index, value)) = self.left.next() else {
            return Ok(None);
        };
        let place = &JsonPath::Element(self.place, index);
        let read = seed.deserialize(ValueAt { value, place });
        read.map(Some).map_err(|one| one.at(place))
    }
}

struct Members<'v, 'p> {
    left: serde_json::map::Iter<'v>,
    last: Option<(&'v String, &'v Value)>,
    place: &'p JsonPath<'p>,
}

impl<'v> MapAccess<'v> for Members<'v, '_> {
    type Error = SchemaMismatch;

    fn next_key_seed<K: DeserializeSeed<'v>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, SchemaMismatch> {
        self.last = self.left.next();
        let name = self.last.map(|(name, _)| name.as_str().into_deserializer());
        let read = name.map(|name: StrDeserializer<'_, SchemaMismatch>| seed.deserialize(name));
        read.transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'v>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, SchemaMismatch> {
        let missing = || SchemaMismatch::new("type", "is not of a form that is known".to_owned());
        let (name, value) = self.last.take().ok_or_else(missing)?;
        let place = &JsonPath::Member(self.place, name);
        let read = seed.deserialize(ValueAt { value, place });
        read.map_err(|one| one.at(place))
    }
}

/// A variant of an enum: its name, or an object with that one member.
struct Variant<'v, 'p> {
    name: &'v str,
    value: Option<&'v Value>,
    place: &'p JsonPath<'p>,
}

impl<'v> Variant<'v, '_> {
    fn read<T>(
        self,
        read: impl FnOnce(ValueAt<'v, '_>) -> Result<T, SchemaMismatch>,
    ) -> Result<T, SchemaMismatch> {
        let name = self.name;
        let missing = || {
            let message = format!("missing required field: {name}");
            SchemaMismatch::new("required", message).at(self.place)
        };
        let value = self.value.ok_or_else(missing)?;
        let place = &JsonPath::Member(self.place, name);
        read(ValueAt { value, place }).map_err(|one| one.at(place))
    }
}

impl<'v> EnumAccess<'v> for Variant<'v, '_> {
    type Error = SchemaMismatch;
    type Variant = Self;

    fn variant_seed<N: DeserializeSeed<'v>>(
        self,
        seed: N,
    ) -> Result<(N::Value, Self), SchemaMismatch> {
        let name: StrDeserializer<'_, SchemaMismatch> = self.name.into_deserializer();
        let name = seed.deserialize(name);
        Ok((name.map_err(|one| one.at(self.place))?, self))
    }
}

impl<'v> VariantAccess<'v> for Variant<'v, '_> {
    type Error = SchemaMismatch;

    fn unit_variant(self) -> Result<(), SchemaMismatch> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(_) => self.read(|at| Err(at.type_mismatch("null"))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'v>>(
        self,
        seed: T,
    ) -> Result<T::Value, SchemaMismatch> {
        self.read(|at| seed.deserialize(at))
    }

    fn tuple_variant<V: Visitor<'v>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        self.read(|at| at.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'v>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SchemaMismatch> {
        self.read(|at| at.map(visitor))
    }
}
