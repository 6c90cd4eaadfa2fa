//! What the proxy hands over in its own serialization.

use spillway_filter_core::headers::{self, Pairs, RequestHeaders, ResponseHeaders};
use spillway_filter_core::testing::serialize;

/// Any bytes: no pair is made of more than there is. What was read, written again, reads the same.
pub fn header_map(data: &[u8]) {
    let read: Vec<(Vec<u8>, Vec<u8>)> =
        Pairs::new(data).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    let bytes: usize = read.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    assert!(bytes <= data.len());
    let written = serialize(&read);
    let again = Pairs::new(&written).map(|(name, value)| (name.to_vec(), value.to_vec()));
    assert!(again.eq(read.iter().cloned()));
    let request = RequestHeaders::read(Pairs::new(data));
    assert_eq!(request.method, last(&read, b":method"));
    assert_eq!(request.path, last(&read, b":path"));
    let response = ResponseHeaders::read(Pairs::new(data));
    assert_eq!(response.status, last(&read, b":status"));
}

fn last<'a>(pairs: &'a [(Vec<u8>, Vec<u8>)], name: &[u8]) -> Option<&'a [u8]> {
    pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
}

/// Digits are a number, and nothing else is.
pub fn decimal(data: &[u8]) {
    let expected = std::str::from_utf8(data)
        .ok()
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse().ok());
    assert_eq!(headers::decimal(data), expected);
}
