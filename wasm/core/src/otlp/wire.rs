//! Writers of protobuf fields and OTLP attributes. All of them append to a buffer.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Writes a KeyValue {key = 1, value = 2} with AnyValue.string_value = 1, as field `tag`. All
/// lengths are computed first, so no bytes are moved.
pub fn put_string(tag: u32, key: &str, text: &[u8], out: &mut Vec<u8>) {
    let value = field_len(text.len());
    put_header(tag, field_len(key.len()) + field_len(value), out);
    put_bytes(1, key.as_bytes(), out);
    put_header(2, value, out);
    put_bytes(1, text, out);
}

/// Writes a KeyValue with AnyValue.int_value = 3 (int64), as field `tag`.
pub fn put_int(tag: u32, key: &str, number: u64, out: &mut Vec<u8>) {
    let number = number.min(i64::MAX as u64);
    let value = 1 + encoded_len_varint(number);
    put_header(tag, field_len(key.len()) + field_len(value), out);
    put_bytes(1, key.as_bytes(), out);
    put_header(2, value, out);
    put_varint(3, number, out);
}

/// Writes a KeyValue with AnyValue.bool_value = 2, as field `tag`.
pub fn put_bool(tag: u32, key: &str, value: bool, out: &mut Vec<u8>) {
    put_header(tag, field_len(key.len()) + field_len(2), out);
    put_bytes(1, key.as_bytes(), out);
    put_header(2, 2, out);
    put_varint(2, u64::from(value), out);
}

/// Writes a KeyValue with AnyValue.double_value = 4, as field `tag`.
pub fn put_double(tag: u32, key: &str, number: f64, out: &mut Vec<u8>) {
    put_header(tag, field_len(key.len()) + field_len(9), out);
    put_bytes(1, key.as_bytes(), out);
    put_header(2, 9, out);
    put_fixed64(4, number.to_bits(), out);
}

/// Writes a length-delimited field.
pub fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_header(tag, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes tag and length of a length-delimited field whose `len` bytes follow.
pub fn put_header(tag: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

/// Writes a varint field.
pub fn put_varint(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value, out);
}

/// Writes a fixed64 or double field.
pub fn put_fixed64(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::SixtyFourBit, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a fixed32 field.
pub fn put_fixed32(tag: u32, value: u32, out: &mut Vec<u8>) {
    encode_key(tag, WireType::ThirtyTwoBit, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Encoded size of a length-delimited field whose tag is below 16, in bytes.
pub fn field_len(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}
