//! Envoy's response flags: why a request did not complete normally, by the short names of the
//! access log.
//!
//! Source: Envoy `stream_info.h` (CoreResponseFlag, in order) and "Access logging",
//! %RESPONSE_FLAGS%.

const NAMES: [&str; 30] = [
    "LH", "UH", "UT", "LR", "UR", "UF", "UC", "UO", "NR", "DI", "FI", "RL", "UAEX", "RLSE", "DC", "URX",
    "SI", "IH", "DPE", "UMSDR", "RFCF", "NFCF", "DT", "UPE", "NC", "OM", "DF", "DO", "DR", "UDO",
];
/// Flags that indicate no failure: DI (an injected delay) and RFCF (an answer from a cache).
const HARMLESS: u64 = 1 << 9 | 1 << 20;

/// DC and DR: the caller disconnected or reset the stream.
const CALLER_LEFT: u64 = 1 << 14 | 1 << 28;

/// Whether the only problem was that the caller left.
pub fn caller_left(flags: u64) -> bool {
    failed(flags) && flags & !HARMLESS & !CALLER_LEFT == 0
}

/// Whether any flag says that the exchange did not complete as requested.
pub fn failed(flags: u64) -> bool {
    flags & !HARMLESS != 0
}

/// Names of the flags that are set, separated by commas, lowest bit first.
pub fn names(flags: u64) -> String {
    set(flags).collect::<Vec<_>>().join(",")
}

/// Name of the first flag that indicates a failure, or `_OTHER` when there is none.
pub fn first(flags: u64) -> &'static str {
    set(flags & !HARMLESS).next().unwrap_or("_OTHER")
}

fn set(flags: u64) -> impl Iterator<Item = &'static str> {
    NAMES.iter().enumerate().filter(move |(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits become their names, and unknown bits have none. An injected delay is no failure.
    #[test]
    fn flags() {
        assert_eq!(names(0), "");
        assert_eq!(names(0x8020), "UF,URX");
        assert_eq!(names(0x4000), "DC");
        assert_eq!(names(1 << 29 | 1 << 40), "UDO");
        assert_eq!((first(0x8020), first(1 << 9), first(0)), ("UF", "_OTHER", "_OTHER"));
        assert!(caller_left(0x4000) && caller_left(1 << 28 | 1 << 9));
        assert!(!caller_left(0) && !caller_left(1 << 9) && !caller_left(0x4010));
        assert!(!failed(0) && !failed(1 << 9) && failed(1 << 9 | 4));
    }
}
