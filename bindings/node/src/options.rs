//! Values that JavaScript gave.

use std::time::Duration;

use holdline::LockError;
use holdline_bindings::options::{Given, Mistake, Unfit};
use napi::bindgen_prelude::{JsObjectValue, Object, Unknown};
use napi::{JsValue, Result, ValueType};

/// Arguments, or what is wrong with them.
pub(crate) type Checked<T> = std::result::Result<T, Mistake>;

const TIME: &str = "milliseconds, or a text such as '10s'";

/// A value of an option.
pub(crate) enum Value {
    Flag(bool),
    Number(f64),
    Text(String),
    Fields(Vec<(String, Value)>),
    /// The name of another type.
    Other(&'static str),
}

impl Value {
    /// Reads a value; of an object, its fields that are none.
    pub(crate) fn of(value: Unknown<'_>) -> Result<Value> {
        match value.get_type()? {
            ValueType::Object => {
                Ok(Value::Fields(each_field(&value.coerce_to_object()?, Value::simple)?))
            }
            _ => Value::simple(value),
        }
    }

    fn simple(value: Unknown<'_>) -> Result<Value> {
        Ok(match value.get_type()? {
            ValueType::Boolean => Value::Flag(value.coerce_to_bool()?),
            ValueType::Number => Value::Number(value.coerce_to_number()?.get_double()?),
            ValueType::String => Value::Text(value.coerce_to_string()?.into_utf8()?.into_owned()?),
            ValueType::Object => Value::Other("an object"),
            ValueType::Undefined => Value::Other("undefined"),
            ValueType::Null => Value::Other("null"),
            ValueType::BigInt => Value::Other("a bigint"),
            ValueType::Function => Value::Other("a function"),
            _ => Value::Other("a symbol"),
        })
    }

    fn unfit(&self, wanted: &'static str) -> Unfit {
        let given = match self {
            Value::Flag(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::Fields(_) => "an object",
            Value::Other(name) => name,
        };
        Unfit::Type { wanted, given: given.to_owned() }
    }
}

fn each_field(
    object: &Object<'_>,
    read: impl Fn(Unknown<'_>) -> Result<Value>,
) -> Result<Vec<(String, Value)>> {
    let mut fields = Vec::new();
    for key in Object::keys(object)? {
        let value: Unknown<'_> = object.get_named_property(&key)?;
        if value.get_type()? != ValueType::Undefined {
            fields.push((key, read(value)?));
        }
    }
    Ok(fields)
}

/// The options that are set, with their names as the library spells them.
pub(crate) fn given(options: Option<Object<'_>>) -> Result<Vec<(String, Value)>> {
    let Some(options) = options else { return Ok(Vec::new()) };
    let fields = each_field(&options, Value::of)?.into_iter();
    Ok(fields.map(|(name, value)| (snake_case(&name), value)).collect())
}

impl Given for Value {
    fn time(&self) -> std::result::Result<Duration, Unfit> {
        let millis = match self {
            Value::Number(millis) => *millis,
            Value::Text(text) => read_time(text)
                .ok_or_else(|| Unfit::Value(format!("{text:?} is no time: write it as '10s'")))?,
            other => return Err(other.unfit(TIME)),
        };
        Duration::try_from_secs_f64(millis / 1000.0)
            .map_err(|why| Unfit::Value(format!("{millis} ms is no time: {why}")))
    }

    fn text(&self) -> std::result::Result<String, Unfit> {
        match self {
            Value::Text(text) => Ok(text.clone()),
            other => Err(other.unfit("a string")),
        }
    }

    fn flag(&self) -> std::result::Result<bool, Unfit> {
        match self {
            Value::Flag(flag) => Ok(*flag),
            other => Err(other.unfit("a boolean")),
        }
    }

    fn texts(&self) -> std::result::Result<Vec<(String, String)>, Unfit> {
        match self {
            Value::Fields(fields) => {
                fields.iter().map(|(key, value)| Ok((key.clone(), value.text()?))).collect()
            }
            other => Err(other.unfit("an object of strings")),
        }
    }
}

/// Reads a time with its unit, as milliseconds.
fn read_time(text: &str) -> Option<f64> {
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let number: f64 = text[..unit].trim_end().parse().ok()?;
    let millis = match &text[unit..] {
        "ms" => 1.0,
        "s" => 1000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    Some(number * millis)
}

/// Reads one time that is no option of a lock.
pub(crate) fn time(field: &'static str, value: &Value) -> Checked<Duration> {
    value.time().map_err(|unfit| unfit.of(field))
}

/// Reads the duration of a renewal, if there is one.
pub(crate) fn lease_duration(value: Option<Unknown<'_>>) -> Result<Checked<Option<Duration>>> {
    let value = value.map(Value::of).transpose()?;
    Ok(value.map(|value| time("lease_duration", &value)).transpose())
}

/// Reads a number of permits.
pub(crate) fn whole(field: &'static str, number: f64) -> Checked<u32> {
    if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) {
        // It is whole, and in the range.
        return Ok(number as u32);
    }
    let says = format!("{number} is no whole number from 0 to {}", u32::MAX);
    Err(Mistake::Value(LockError::invalid("holdline", field, says)))
}

/// Spells a name as the library does.
fn snake_case(name: &str) -> String {
    let mut spelled = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled
}
