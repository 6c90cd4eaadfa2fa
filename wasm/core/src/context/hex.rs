//! Decoder of fixed-size identifiers in hexadecimal, as trace headers carry them.

/// Decodes exactly `2 * N` hexadecimal digits. Upper-case digits are accepted only if `upper` is
/// true.
pub fn decode<const N: usize>(text: &[u8], upper: bool) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let mut out = [0u8; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = (nibble(*high, upper)? << 4) | nibble(*low, upper)?;
    }
    Some(out)
}

fn nibble(digit: u8, upper: bool) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' if upper => Some(digit - b'A' + 10),
        _ => None,
    }
}
