//! Helpers that write inputs for the core's tests and the fuzz targets.

/// Formats bytes as two lower-case hexadecimal digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
