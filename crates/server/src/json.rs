//! JSON as the description of the API means it, where serde would take more, or less.
//!
//! JSON has one kind of number, and some languages write 30000 as 30000.0: both are the same
//! number, here as in JSON Schema. And an object is never a list of its fields in their order.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use holdline_core::FencingToken;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, Unexpected, Visitor,
};

/// How long most answers are at most. A longer one costs another allocation.
const USUAL_LENGTH: usize = 512;

/// An answer of JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut text = Vec::with_capacity(USUAL_LENGTH);
        if serde_json::to_writer(&mut text, &self.0).is_err() {
            // Strings and numbers always encode.
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let mut response = Response::new(Body::from(text));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

/// What is written as an object.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Reads an object, for `deserialize_with`.
pub(crate) fn object<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Object::deserialize(from).map(|object| object.0)
}

/// Reads a list of objects.
pub(crate) fn objects<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let objects = Vec::<Object<T>>::deserialize(from)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Up to here every whole number is exact as a floating point number: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Whole, D::Error> {
        from.deserialize_u64(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, not below 0")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        if number.fract() != 0.0 || !(0.0..=EXACT).contains(&number) {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        // Whole, not negative and exact.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(Whole(number as u64))
    }
}

/// Reads a whole number, for `deserialize_with`.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Whole::deserialize(from).map(|number| number.0)
}

/// Reads a fencing token, which is a number and never a text: texts compare "9" above "10".
pub(crate) fn fencing_token<'de, D: Deserializer<'de>>(from: D) -> Result<FencingToken, D::Error> {
    FencingToken::new(whole(from)?).map_err(D::Error::custom)
}

/// Reads a whole number that may be absent.
pub(crate) fn maybe<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let number = Option::<Whole>::deserialize(from)?;
    let large = |number| D::Error::invalid_value(Unexpected::Unsigned(number), &"a smaller number");
    number.map(|Whole(number)| T::try_from(number).map_err(|_| large(number))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "whole")]
        a: u64,
        #[serde(default, deserialize_with = "maybe")]
        b: Option<u32>,
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        for (text, a, b) in [
            (r#"{"a": 30000}"#, 30_000, None),
            (r#"{"a": 30000.0, "b": null}"#, 30_000, None),
            (r#"{"a": 3e4, "b": 7.0}"#, 30_000, Some(7)),
            (r#"{"a": 18446744073709551615, "b": 4294967295}"#, u64::MAX, Some(u32::MAX)),
        ] {
            assert_eq!(serde_json::from_str::<Numbers>(text).expect(text), Numbers { a, b });
        }
        for text in [
            r#"{"a": 0.5}"#,
            r#"{"a": -1}"#,
            r#"{"a": -1.0}"#,
            r#"{"a": 1e300}"#,
            r#"{"a": "1"}"#,
            r#"{"a": null}"#,
            r#"{"a": 1, "b": 4294967296}"#,
        ] {
            assert!(serde_json::from_str::<Numbers>(text).is_err(), "{text}");
        }
    }
}
