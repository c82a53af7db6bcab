//! AMF0 values, read with limits on depth and count, and written.
//!
//! Source: "Action Message Format, AMF 0" (Adobe, 2007). References, movie clips, record sets and the switch
//! to AMF3 are refused: no RTMP peer needs them, and a reference could make a small message large.

use std::fmt;

use super::limits::{AMF_DEPTH_MAX, AMF_TOP_VALUES_MAX, AMF_VALUES_MAX};

const NUMBER: u8 = 0x00;
const BOOLEAN: u8 = 0x01;
const STRING: u8 = 0x02;
const OBJECT: u8 = 0x03;
const NULL: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const ECMA_ARRAY: u8 = 0x08;
const OBJECT_END: u8 = 0x09;
const STRICT_ARRAY: u8 = 0x0a;
const DATE: u8 = 0x0b;
const LONG_STRING: u8 = 0x0c;
const XML_DOCUMENT: u8 = 0x0f;
const TYPED_OBJECT: u8 = 0x10;

/// Reasons for which AMF0 bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Amf0Error {
    /// The bytes end inside a value.
    #[error("amf0 value is cut off")]
    Truncated,
    /// Nested deeper than [`AMF_DEPTH_MAX`].
    #[error("amf0 values are nested too deep")]
    TooDeep,
    /// More than [`AMF_VALUES_MAX`] values, or [`AMF_TOP_VALUES_MAX`] at the top.
    #[error("too many amf0 values in one message")]
    TooMany,
    /// A type marker that is not supported.
    #[error("amf0 type marker {0:#04x} is not supported")]
    Marker(u8),
}

/// One AMF0 value. Objects and arrays keep the order of their members.
///
/// `Debug` prints the length of texts, not the texts: they may be secrets.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Number (IEEE 754 double).
    Number(f64),
    /// Boolean.
    Boolean(bool),
    /// String, long string or XML document.
    String(String),
    /// Object; a typed object loses its class name.
    Object(Vec<(String, Value)>),
    /// Null.
    Null,
    /// Undefined.
    Undefined,
    /// ECMA array: named members.
    EcmaArray(Vec<(String, Value)>),
    /// Strict array: members by position.
    StrictArray(Vec<Value>),
    /// Date in milliseconds since 1970; the time zone is dropped.
    Date(f64),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Boolean(boolean) => write!(f, "{boolean}"),
            Value::String(text) => write!(f, "text of {} bytes", text.len()),
            Value::Object(members) => f.debug_map().entries(members.iter().map(|(n, v)| (n, v))).finish(),
            Value::Null => f.write_str("null"),
            Value::Undefined => f.write_str("undefined"),
            Value::EcmaArray(members) => f.debug_map().entries(members.iter().map(|(n, v)| (n, v))).finish(),
            Value::StrictArray(values) => f.debug_list().entries(values).finish(),
            Value::Date(millis) => write!(f, "date {millis}"),
        }
    }
}

impl Value {
    /// The number, if this is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members, if this is an object or ECMA array.
    pub fn members(&self) -> Option<&[(String, Value)]> {
        match self {
            Value::Object(members) | Value::EcmaArray(members) => Some(members),
            _ => None,
        }
    }

    /// The member called `name` of an object or ECMA array.
    pub fn member(&self, name: &str) -> Option<&Value> {
        self.members()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// Reads all values of one message body.
///
/// # Errors
/// Any [`Amf0Error`]; no values are returned. Memory is bounded by three times the body's length and
/// [`AMF_VALUES_MAX`].
pub fn decode_all(body: &[u8]) -> Result<Vec<Value>, Amf0Error> {
    match decode_front(body)? {
        (values, None) => Ok(values),
        (_, Some(error)) => Err(error),
    }
}

/// Reads the values of one message body up to the first unreadable one; also returns the error of that value.
///
/// # Errors
/// [`Amf0Error::TooDeep`] and [`Amf0Error::TooMany`]: the limits hold for all of the body that is read.
pub fn decode_front(body: &[u8]) -> Result<(Vec<Value>, Option<Amf0Error>), Amf0Error> {
    let mut reader = Reader { rest: body, values: 0 };
    let mut values = Vec::new();
    while !reader.rest.is_empty() {
        if values.len() == AMF_TOP_VALUES_MAX {
            return Err(Amf0Error::TooMany);
        }
        match reader.value(1) {
            Ok(value) => values.push(value),
            Err(error @ (Amf0Error::Truncated | Amf0Error::Marker(_))) => return Ok((values, Some(error))),
            Err(error) => return Err(error),
        }
    }
    Ok((values, None))
}

struct Reader<'a> {
    rest: &'a [u8],
    values: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Amf0Error> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Amf0Error::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Amf0Error> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Amf0Error::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<f64, Amf0Error> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    /// Some peers send other encodings than UTF-8 (GBK, Latin-1): each invalid byte becomes U+FFFD, which has three bytes.
    fn text(&mut self, bytes: usize) -> Result<String, Amf0Error> {
        Ok(String::from_utf8_lossy(self.take(bytes)?).into_owned())
    }

    fn short_text(&mut self) -> Result<String, Amf0Error> {
        let bytes = u16::from_be_bytes(self.array()?);
        self.text(usize::from(bytes))
    }

    fn long_text(&mut self) -> Result<String, Amf0Error> {
        let bytes = u32::from_be_bytes(self.array()?);
        self.text(usize::try_from(bytes).map_err(|_| Amf0Error::Truncated)?)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Amf0Error> {
        if depth > AMF_DEPTH_MAX {
            return Err(Amf0Error::TooDeep);
        }
        self.values += 1;
        if self.values > AMF_VALUES_MAX {
            return Err(Amf0Error::TooMany);
        }
        let [marker] = self.array()?;
        Ok(match marker {
            NUMBER => Value::Number(self.number()?),
            BOOLEAN => Value::Boolean(self.array::<1>()?[0] != 0),
            STRING => Value::String(self.short_text()?),
            OBJECT => Value::Object(self.members(depth)?),
            NULL => Value::Null,
            UNDEFINED => Value::Undefined,
            ECMA_ARRAY => {
                // The announced count is often wrong; the end marker decides.
                self.take(4)?;
                Value::EcmaArray(self.members(depth)?)
            }
            STRICT_ARRAY => {
                let count = u32::from_be_bytes(self.array()?);
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(depth + 1)?);
                }
                Value::StrictArray(values)
            }
            DATE => {
                let millis = self.number()?;
                self.take(2)?;
                Value::Date(millis)
            }
            LONG_STRING | XML_DOCUMENT => Value::String(self.long_text()?),
            TYPED_OBJECT => {
                self.short_text()?;
                Value::Object(self.members(depth)?)
            }
            other => return Err(Amf0Error::Marker(other)),
        })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<(String, Value)>, Amf0Error> {
        let mut members = Vec::new();
        loop {
            let name = self.short_text()?;
            if name.is_empty() && self.rest.first() == Some(&OBJECT_END) {
                self.take(1)?;
                return Ok(members);
            }
            members.push((name, self.value(depth + 1)?));
        }
    }
}

/// Appends one value.
///
/// Names longer than 65,535 bytes cannot be written in AMF0 and are cut at a character boundary.
pub fn encode(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Number(number) => {
            out.push(NUMBER);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::Boolean(boolean) => out.extend_from_slice(&[BOOLEAN, u8::from(*boolean)]),
        Value::String(text) => encode_text(out, text),
        Value::Object(members) => {
            out.push(OBJECT);
            encode_members(out, members);
        }
        Value::Null => out.push(NULL),
        Value::Undefined => out.push(UNDEFINED),
        Value::EcmaArray(members) => {
            out.push(ECMA_ARRAY);
            out.extend_from_slice(&count_u32(members.len()).to_be_bytes());
            encode_members(out, members);
        }
        Value::StrictArray(values) => {
            out.push(STRICT_ARRAY);
            out.extend_from_slice(&count_u32(values.len()).to_be_bytes());
            for value in values {
                encode(out, value);
            }
        }
        Value::Date(millis) => {
            out.push(DATE);
            out.extend_from_slice(&millis.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        }
    }
}

/// Appends all values one after another.
pub fn encode_all(values: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        encode(&mut out, value);
    }
    out
}

fn count_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn encode_text(out: &mut Vec<u8>, text: &str) {
    match u16::try_from(text.len()) {
        Ok(bytes) => {
            out.push(STRING);
            out.extend_from_slice(&bytes.to_be_bytes());
        }
        Err(_) => {
            out.push(LONG_STRING);
            out.extend_from_slice(&count_u32(text.len()).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

fn encode_members(out: &mut Vec<u8>, members: &[(String, Value)]) {
    for (name, value) in members {
        let name = &name[..name.floor_char_boundary(usize::from(u16::MAX))];
        let bytes = u16::try_from(name.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&bytes.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        encode(out, value);
    }
    out.extend_from_slice(&[0, 0, OBJECT_END]);
}

#[cfg(test)]
mod tests;
