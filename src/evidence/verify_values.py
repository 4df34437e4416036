"""The part of verify.py that knows what values are: their text under RFC 8785, whose SHA-256 names
worlds and objects, and whether they fit a JSON Schema. It is used by verify_world.py and does
nothing by itself."""
import hashlib, json

from verify import Real

class Unknown(Exception): """What this verifier cannot say."""

# ---- RFC 8785 ------------------------------------------------------------------------------------
def number(value):
    """A number as ECMAScript prints it: the shortest digits that are read as the same double."""
    value = float(value)
    if value == 0: return "0"
    if value < 0: return "-" + number(-value)
    mantissa, _, exponent = float.__repr__(value).partition("e")
    front, _, rest = mantissa.partition(".")
    digits = (front + rest).lstrip("0")
    point = len(digits) - len(rest) + int(exponent or 0)
    digits = digits.rstrip("0")
    size = len(digits)
    if size <= point <= 21: return digits + "0" * (point - size)
    if 0 < point <= 21: return digits[:point] + "." + digits[point:]
    if -6 < point <= 0: return "0." + "0" * -point + digits
    return "%s%se%+d" % (digits[0], "." + digits[1:] if size > 1 else "", point - 1)

def text(value):
    """The canonical text. What it is made of was read with limits; depth is one of them."""
    if value is None or isinstance(value, (bool, str)): return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)): return number(value)
    if isinstance(value, list): return "[%s]" % ",".join(map(text, value))
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{%s}" % ",".join("%s:%s" % (text(name), text(value[name])) for name in names)

def digest(value): return hashlib.sha256(text(value).encode("utf-8")).hexdigest()

# ---- JSON Schema ---------------------------------------------------------------------------------
WORDS = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
         "readOnly", "writeOnly"}

def is_number(value): return isinstance(value, (int, float)) and not isinstance(value, bool)
def is_whole(value): return is_number(value) and value == int(value)

TYPES = {
    "null": lambda value: value is None, "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str), "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict), "number": is_number, "integer": is_whole}

def same(one, other):
    """Whether two values are one in JSON Schema: 1 is 1.0, and true is no number."""
    if isinstance(one, bool) or isinstance(other, bool): return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other

def is_type(value, wanted):
    wanted = wanted if isinstance(wanted, list) else [wanted]
    return any(TYPES[one](value) for one in wanted)

def bounds(kind, measure, holds):
    return lambda value, limit: not TYPES[kind](value) or holds(measure(value), limit)

def least(value, limit): return value >= limit
def most(value, limit): return value <= limit
def as_it_is(value): return value

RULES = {
    "type": is_type,
    "enum": lambda value, among: any(same(value, one) for one in among),
    "const": same,
    "required": lambda value, names: not isinstance(value, dict) or all(
        name in value for name in names),
    "minimum": bounds("number", as_it_is, least), "maximum": bounds("number", as_it_is, most),
    "exclusiveMinimum": bounds("number", as_it_is, lambda value, limit: value > limit),
    "exclusiveMaximum": bounds("number", as_it_is, lambda value, limit: value < limit),
    "minLength": bounds("string", len, least), "maxLength": bounds("string", len, most),
    "minItems": bounds("array", len, least), "maxItems": bounds("array", len, most),
    "minProperties": bounds("object", len, least), "maxProperties": bounds("object", len, most),
    "properties": lambda value, inner: not isinstance(value, dict) or all(
        fits(value[name], inner[name]) for name in inner if name in value),
    "allOf": lambda value, parts: all([fits(value, one) for one in parts]),
    "anyOf": lambda value, parts: any([fits(value, one) for one in parts]),
    "oneOf": lambda value, parts: sum([fits(value, one) for one in parts]) == 1,
    "not": lambda value, inner: not fits(value, inner)}

def fits(value, schema):
    """Whether a value fits a schema. Unknown: the schema says what is not judged here."""
    if isinstance(schema, bool): return schema
    strange = sorted(set(schema) - WORDS - set(RULES) - {"items", "additionalProperties"})
    if strange or isinstance(schema.get("items"), list):
        raise Unknown("a schema says %s" % (strange or ["items"])[0])
    found = [RULES[name](value, schema[name]) for name in schema if name in RULES]
    if isinstance(value, list): found += [fits(one, schema.get("items", True)) for one in value]
    if isinstance(value, dict):
        other = set(value) - set(schema.get("properties", ()))
        rest = schema.get("additionalProperties", True)
        found += [fits(value[name], rest) for name in other]
    return all(found)
