//! What the tests of the core and the fuzz targets write inputs with.

/// A header map as proxy-wasm serializes it.
pub fn serialize(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = (pairs.len() as u32).to_le_bytes().to_vec();
    for (name, value) in pairs {
        out.extend((name.len() as u32).to_le_bytes());
        out.extend((value.len() as u32).to_le_bytes());
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend(text);
        out.push(0);
    }
    out
}

/// Two lower-case digits per byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
