//! Detects whether bytes form a protobuf message of any type. Source: protobuf.dev, "Encoding".

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Whether a protobuf parser that knows none of the fields accepts `bytes`.
///
/// Only ASCII input is supported, where every varint is one byte. For other input the answer is
/// false.
pub fn is_ascii_message(bytes: &[u8]) -> bool {
    let mut groups = Vec::new();
    let mut rest = bytes;
    while let [tag, after @ ..] = rest {
        let field = tag >> 3;
        let length = match tag & 7 {
            VARINT => 1,
            FIXED64 => 8,
            FIXED32 => 4,
            BYTES => after.first().map_or(usize::MAX, |length| 1 + usize::from(*length)),
            GROUP => {
                groups.push(field);
                0
            }
            GROUP_END if groups.pop() == Some(field) => 0,
            _ => return false,
        };
        match after.get(length..) {
            Some(next) if field > 0 && tag.is_ascii() => rest = next,
            _ => return false,
        }
    }
    groups.is_empty()
}
