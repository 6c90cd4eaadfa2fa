//! Reads kind, method and path from a span's attributes, whichever tracer wrote them.
//!
//! Supported are our filter, OpenTelemetry's SDKs (stable and old HTTP and RPC conventions),
//! Envoy's and Istio's tracers, and gRPC spans that came from Jaeger clients.

use spillway_contracts::{VALUE_DIRECTION_INBOUND, VALUE_DIRECTION_OUTBOUND};

use crate::decode::attributes::Attributes;
use crate::decode::keys::*;
use crate::span::Kind;

const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;
/// Longest path, in bytes. Longer paths are cut.
pub const MAX_PATH: usize = 2048;
/// Longest method, in bytes. Longer words are not methods.
const MAX_METHOD: usize = 32;
/// The conventions' value for a method that they do not know.
const OTHER_METHOD: &[u8] = b"_OTHER";

/// Method and path of the request that a span served or made. A part that the span does not name is
/// empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Letters only, in any case.
    pub method: &'a [u8],
    pub path: Path<'a>,
}

/// The source of a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path<'a> {
    #[default]
    None,
    Raw(&'a [u8]),
    Route(&'a [u8]),
    /// Service and method of the path `/service/method`.
    Rpc(&'a [u8], &'a [u8]),
}

/// Returns method and path from the HTTP attributes, else the RPC attributes, else the span's name.
pub fn request<'a>(attributes: &Attributes<'_, 'a>, name: &'a [u8]) -> Request<'a> {
    let method = method(attributes);
    let path = attributes.text(PATH);
    if !method.is_empty() || !path.is_empty() {
        let route = attributes.text(ROUTE);
        let path = match (route, path) {
            ([], []) => Path::None,
            ([], path) => Path::Raw(cut(path)),
            (route, _) => Path::Route(cut(route)),
        };
        return Request { method: letters(method), path };
    }
    rpc(attributes, name).unwrap_or_else(|| from_name(cut(name)))
}

fn method<'a>(attributes: &Attributes<'_, 'a>) -> &'a [u8] {
    match attributes.text(METHOD) {
        OTHER_METHOD => attributes.text(METHOD_ORIGINAL),
        method => method,
    }
}

fn letters(method: &[u8]) -> &[u8] {
    if method.len() <= MAX_METHOD && method.iter().all(u8::is_ascii_alphabetic) { method } else { b"" }
}

fn rpc<'a>(attributes: &Attributes<'_, 'a>, name: &'a [u8]) -> Option<Request<'a>> {
    let post = |path| Some(Request { method: b"POST", path });
    match (attributes.text(RPC_SERVICE), attributes.text(RPC_METHOD)) {
        // Since version 1.38 of the conventions, the method's name includes the service.
        ([], full) if full.contains(&b'/') => return post(Path::Route(cut(full))),
        ([], _) | (_, []) => {}
        (service, method) if service.len() + method.len() + 2 <= MAX_PATH => {
            return post(Path::Rpc(service, method));
        }
        (service, _) => return post(Path::Rpc(cut(service), b"")),
    }
    let is_rpc =
        attributes.text(COMPONENT).eq_ignore_ascii_case(b"grpc") || attributes.get(RPC_SYSTEM).is_some();
    if is_rpc && is_grpc_path(name) { post(Path::Route(cut(name))) } else { None }
}

/// Whether a name has the form `/package.Service/Method`.
fn is_grpc_path(name: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let mut parts = name.split(|byte| *byte == b'/');
    let (Some([]), Some(service), Some(method), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let in_service = |byte: &u8| word(byte) || *byte == b'.';
    !service.is_empty() && service.iter().all(in_service) && !method.is_empty() && method.iter().all(word)
}

/// Parses the names `GET /path` and `HTTP GET /path`.
fn from_name(name: &[u8]) -> Request<'_> {
    let parse = |name: &'_ [u8]| -> Option<(usize, usize)> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let (method, path) = name.split_at_checked(space)?;
        let is_path = path.get(1) == Some(&b'/') && !path.get(1..)?.iter().any(u8::is_ascii_whitespace);
        (is_path && !method.is_empty() && method.iter().all(u8::is_ascii_uppercase))
            .then_some((space, space + 1))
    };
    let rest = name.strip_prefix(b"HTTP ").filter(|rest| parse(rest).is_some()).unwrap_or(name);
    let Some((end, start)) = parse(rest) else { return Request::default() };
    let (method, path) = (rest.get(..end).unwrap_or_default(), rest.get(start..).unwrap_or_default());
    Request { method: letters(method), path: Path::Raw(path) }
}

/// Cuts a text to `MAX_PATH` bytes. A character that is cut in two does no harm, because templates
/// are ASCII.
fn cut(text: &[u8]) -> &[u8] {
    text.get(..MAX_PATH).unwrap_or(text)
}

/// Returns the kind of a span: from its kind field, else its direction attributes, else the Envoy
/// cluster that it went to.
///
/// Producers and consumers of messages neither serve nor make requests.
pub fn kind(attributes: &Attributes<'_, '_>, number: i32) -> Kind {
    match number {
        SERVER => return Kind::Server,
        CLIENT => return Kind::Client,
        PRODUCER | CONSUMER => return Kind::Internal,
        _ => {}
    }
    let named =
        |text: &[u8], names: [&str; 2]| names.iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes()));
    let (direction, upstream) = (attributes.text(DIRECTION), attributes.text(UPSTREAM));
    if named(direction, ["server", VALUE_DIRECTION_INBOUND]) {
        Kind::Server
    } else if named(direction, ["client", VALUE_DIRECTION_OUTBOUND]) {
        Kind::Client
    } else if !direction.is_empty() {
        Kind::Internal
    } else if upstream.starts_with(b"inbound|") {
        Kind::Server
    } else if upstream.starts_with(b"outbound|") {
        Kind::Client
    } else {
        Kind::Internal
    }
}
