//! gRPC method names and status codes as spans record them.
//!
//! Source: OTel semantic conventions for gRPC, up to 1.37, whose names readers of
//! `rpc.grpc.status_code` know. Later versions treat the same codes as errors.

use crate::Direction;
use crate::request::headers::decimal;

/// Value of `rpc.system`.
pub const SYSTEM: &str = "grpc";

/// The gRPC method that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method<'a> {
    /// `package.Service/Method`.
    pub full: &'a str,
    /// `package.Service`.
    pub service: &'a str,
    /// `Method`.
    pub method: &'a str,
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
/// UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
const SERVER_ERRORS: [u64; 6] = [2, 4, 12, 13, 14, 15];
const UNKNOWN: u64 = 2;
/// Longest path, in bytes, that is accepted as a method's name.
const NAME_MAX: usize = 512;

/// Whether a content type belongs to gRPC, such as `application/grpc+proto`.
///
/// `application/grpc-web` does not. It sends its status in the body, so for a filter that does not
/// read bodies it is plain HTTP.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Parses `grpc-status`. A value that is not a known code counts as UNKNOWN, as in gRPC clients.
pub fn status(text: &[u8]) -> u64 {
    let known = |code: &u64| usize::try_from(*code).is_ok_and(|code| code < NAMES.len());
    decimal(text).filter(known).unwrap_or(UNKNOWN)
}

/// Parses `/package.Service/Method`. Returns None when the path has another shape.
pub fn method(path: &[u8]) -> Option<Method<'_>> {
    let full = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    let (service, method) = full.split_once('/')?;
    let named = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    (full.len() <= NAME_MAX && named(service) && named(method)).then_some(Method { full, service, method })
}

/// Returns the name of a status code if this side treats it as an error. A client treats every code
/// except OK as an error, a server only those codes that are its own fault.
pub fn error(direction: Direction, status: u64) -> Option<&'static str> {
    let failed = match direction {
        Direction::Outbound => status != 0,
        Direction::Inbound => SERVER_ERRORS.contains(&status),
    };
    usize::try_from(status).ok().and_then(|status| NAMES.get(status)).copied().filter(|_| failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method's name has two parts of plain characters. Every other path is rejected.
    #[test]
    fn methods() {
        let full = "shop.v1.Cart/AddItem";
        let known = Method { full, service: "shop.v1.Cart", method: "AddItem" };
        assert_eq!(method(b"/shop.v1.Cart/AddItem"), Some(known));
        for path in ["", "/", "/a", "a/b", "/a/", "//b", "/a/b/c", "/a/b?c", "/a b/c"] {
            assert_eq!(method(path.as_bytes()), None, "{path}");
        }
        assert_eq!(method(&[b'/', 0xff, b'/', b'a']), None);
        assert_eq!(method(format!("/a/{}", "b".repeat(600)).as_bytes()), None);
    }

    /// NOT_FOUND is the caller's concern for a server, and an error for a client.
    #[test]
    fn errors() {
        assert_eq!(error(Direction::Inbound, 5), None);
        assert_eq!(error(Direction::Outbound, 5), Some("NOT_FOUND"));
        assert_eq!(error(Direction::Inbound, 14), Some("UNAVAILABLE"));
        assert_eq!(error(Direction::Outbound, 0), None);
    }

    /// Only numbers that gRPC defines are codes. Every other value is UNKNOWN.
    #[test]
    fn statuses() {
        assert_eq!([b"0".as_slice(), b"5", b"16"].map(status), [0, 5, 16]);
        assert_eq!([b"".as_slice(), b"17", b"99", b"-1", b"ok"].map(status), [UNKNOWN; 5]);
    }

    /// gRPC-Web is not gRPC, whatever its codec or parameters.
    #[test]
    fn content_types() {
        for (kind, grpc) in
            [("", true), ("+proto", true), (";v=1", true), ("-web", false), ("-web+proto", false)]
        {
            assert_eq!(is_grpc(format!("application/grpc{kind}").as_bytes()), grpc, "{kind}");
        }
    }
}
