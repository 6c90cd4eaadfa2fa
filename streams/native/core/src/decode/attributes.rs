//! The attributes of a span and its resource, as far as streams/ reads them.

use crate::decode::keys::{Group, KEYS, find};
use crate::decode::wire::{BYTES, Broken, FIXED64, Reader, VARINT, tag};

/// Largest number of attributes of one span that are read.
pub const MAX_ATTRIBUTES: usize = 1024;
/// Highest accepted rate, in requests per second.
const MAX_RATE: f64 = 1e9;

/// A scalar attribute. Text stays as bytes until a caller needs text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Text(&'a [u8]),
    Int(i64),
    Double(f64),
    Bool(bool),
}

/// The values that were found, by key. A value whose bit in `found` is not set is stale.
#[derive(Debug)]
pub struct Slots<'a> {
    found: u64,
    values: [Value<'a>; KEYS.len()],
}

impl<'a> Slots<'a> {
    pub fn new() -> Self {
        Slots { found: 0, values: [Value::Bool(false); KEYS.len()] }
    }

    /// Forgets all values, at no cost.
    pub fn clear(&mut self) {
        self.found = 0;
    }

    /// Whether any key of the group was found.
    #[inline]
    pub fn has(&self, group: Group) -> bool {
        (self.found >> group.first) & group.mask != 0
    }

    /// Whether the group's first key, which is ours, was found.
    #[inline]
    pub fn has_first(&self, group: Group) -> bool {
        (self.found >> group.first) & 1 != 0
    }

    /// Reads one KeyValue. If a key occurs twice, the last value counts. Arrays, lists and bytes
    /// count as absent.
    #[inline(always)]
    pub fn add(&mut self, pair: &'a [u8]) -> Result<(), Broken> {
        let Some((key, value)) = plain_pair(pair) else { return self.add_any(pair) };
        let Some(key) = find(key) else { return Ok(()) };
        if let Some(value) = plain_value(value) {
            self.set(key, value);
            return Ok(());
        }
        self.add_any(pair)
    }

    /// Reads a KeyValue in any valid encoding.
    #[inline(never)]
    fn add_any(&mut self, pair: &'a [u8]) -> Result<(), Broken> {
        let (mut key, mut value) = (None, None);
        let mut fields = Reader::new(pair);
        while let Some(field) = fields.tag()? {
            match field {
                KEY => key = find(fields.bytes()?),
                VALUE => read_value(fields.bytes()?, &mut value)?,
                other => fields.skip(other)?,
            }
        }
        if let (Some(key), Some(value)) = (key, value) {
            self.set(key, value);
        }
        Ok(())
    }

    #[inline(always)]
    fn set(&mut self, key: usize, value: Value<'a>) {
        if let Some(slot) = self.values.get_mut(key) {
            *slot = value;
            self.found |= 1 << key;
        }
    }
}

/// Returns key and AnyValue of a short KeyValue in its usual encoding: the key, the value, and
/// nothing else.
#[inline(always)]
fn plain_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let [KEY_BYTE, length, rest @ ..] = pair else { return None };
    let (key, rest) = rest.split_at_checked(usize::from(*length))?;
    let [VALUE_BYTE, rest_length, value @ ..] = rest else { return None };
    let plain = *length < 0x80 && *rest_length < 0x80 && usize::from(*rest_length) == value.len();
    plain.then_some((key, value))
}

/// Returns the value of a short AnyValue in its usual encoding: a single field.
#[inline(always)]
fn plain_value(value: &[u8]) -> Option<Value<'_>> {
    match value {
        [STRING_BYTE, length, text @ ..] if *length < 0x80 && usize::from(*length) == text.len() => {
            Some(Value::Text(text))
        }
        [INT_BYTE, number] if *number < 0x80 => Some(Value::Int(i64::from(*number))),
        [INT_BYTE, low, high] if *low >= 0x80 && *high < 0x80 => {
            Some(Value::Int(i64::from(*low & 0x7f) | i64::from(*high) << 7))
        }
        [DOUBLE_BYTE, number @ ..] => {
            let number = <[u8; 8]>::try_from(number).ok()?;
            Some(Value::Double(f64::from_le_bytes(number)))
        }
        _ => None,
    }
}

const KEY: u32 = tag(1, BYTES);
const VALUE: u32 = tag(2, BYTES);
const STRING: u32 = tag(1, BYTES);
const BOOL: u32 = tag(2, VARINT);
const INT: u32 = tag(3, VARINT);
const DOUBLE: u32 = tag(4, FIXED64);
const ARRAY: u32 = tag(5, BYTES);
const LIST: u32 = tag(6, BYTES);
const RAW: u32 = tag(7, BYTES);
// The same tags as single bytes, which is their encoding.
const KEY_BYTE: u8 = KEY as u8;
const VALUE_BYTE: u8 = VALUE as u8;
const STRING_BYTE: u8 = STRING as u8;
const INT_BYTE: u8 = INT as u8;
const DOUBLE_BYTE: u8 = DOUBLE as u8;

/// Reads an AnyValue. If it has several alternatives, the last one counts.
#[inline]
fn read_value<'a>(message: &'a [u8], value: &mut Option<Value<'a>>) -> Result<(), Broken> {
    let mut fields = Reader::new(message);
    while let Some(field) = fields.tag()? {
        *value = match field {
            STRING => Some(Value::Text(fields.bytes()?)),
            BOOL => Some(Value::Bool(fields.varint()? != 0)),
            INT => Some(Value::Int(fields.varint()?.cast_signed())),
            DOUBLE => Some(Value::Double(f64::from_bits(fields.fixed64()?))),
            ARRAY | LIST | RAW => {
                fields.skip(field)?;
                None
            }
            other => {
                fields.skip(other)?;
                continue;
            }
        }
    }
    Ok(())
}

/// The attributes of a span. If the span does not have a key, the value of its resource counts.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'s, 'a> {
    pub resource: &'s Slots<'a>,
    pub span: &'s Slots<'a>,
}

impl<'a> Attributes<'_, 'a> {
    /// Returns the value of the group's first key that is present.
    #[inline]
    pub fn get(&self, group: Group) -> Option<Value<'a>> {
        let found = ((self.span.found | self.resource.found) >> group.first) & group.mask;
        if found == 0 {
            return None;
        }
        let at = group.first + found.trailing_zeros() as usize;
        let from = if self.span.found >> at & 1 == 1 { self.span } else { self.resource };
        from.values.get(at).copied()
    }

    /// Returns a text, or an empty one when it is absent or of another type.
    #[inline]
    pub fn text(&self, group: Group) -> &'a [u8] {
        match self.get(group) {
            Some(Value::Text(text)) => text,
            _ => b"",
        }
    }

    /// Returns a count in 0..=limit, or None when it is absent or not such a number. Numbers in
    /// strings are accepted, because Envoy's tracer writes them.
    #[inline]
    pub fn whole(&self, group: Group, limit: u64) -> Option<u64> {
        let number = match self.get(group)? {
            Value::Int(number) => u64::try_from(number).ok()?,
            Value::Text(text) => decimal(text)?,
            // The cast truncates to a whole number.
            Value::Double(number) if number > -1.0 && number < 2f64.powi(63) => number as u64,
            Value::Double(_) => return None,
            Value::Bool(number) => u64::from(number),
        };
        (number <= limit).then_some(number)
    }

    /// Returns a rate per second. It is 0 when absent, negative, or higher than any proxy can
    /// measure. A huge but finite rate would make sums over all spans infinite.
    #[inline]
    pub fn rate(&self, group: Group) -> f64 {
        let rate = match self.get(group) {
            Some(Value::Double(rate)) => rate,
            Some(Value::Int(rate)) => rate as f64,
            _ => 0.0,
        };
        if rate > 0.0 && rate <= MAX_RATE { rate } else { 0.0 }
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    let number: i64 = std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()?;
    u64::try_from(number).ok()
}
