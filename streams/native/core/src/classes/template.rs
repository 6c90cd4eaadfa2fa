//! Path templates of traffic classes (SLATE 4.2), in Envoy's `uri_template` syntax.
//!
//! A template consists of literal segments and whole-segment variables {id}, {id2}, ..., at most
//! five of them (Envoy's limit).

/// Template of paths with too many variables, and of a service's rare templates.
pub const OTHER: &str = "/other";
/// Largest number of variables in a template (Envoy's limit).
pub const MAX_VARIABLES: usize = 5;
/// Longest segment, in bytes, that can be a literal. Longer segments count as identifiers.
const MAX_SEGMENT: usize = 64;

/// Returns the template of a raw path or URL. Query and fragment are dropped.
pub fn path_template(path: &str) -> String {
    text(|out| put_path(path.as_bytes(), out))
}

/// Returns the template of a framework's route (`/users/:id`, `/users/<int:id>`,
/// `/users/{id:[0-9]+}`).
pub fn route_template(route: &str) -> String {
    text(|out| put_route(route.as_bytes(), out))
}

fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    put(&mut out);
    // Literal segments and variables are both ASCII.
    String::from_utf8(out).unwrap_or_default()
}

/// Appends the template of a path. The template is ASCII, whatever the path is.
pub fn put_path(path: &[u8], out: &mut Vec<u8>) {
    assemble(path, is_identifier, out);
}

/// Appends the template of a route. The template is ASCII, whatever the route is.
pub fn put_route(route: &[u8], out: &mut Vec<u8>) {
    let plain = without_variables(route);
    let is_variable = |segment: &[u8]| !is_literal(segment);
    assemble(plain.as_deref().unwrap_or(route), is_variable, out);
}

fn assemble(path: &[u8], is_variable: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
    let (start, mut variables) = (out.len(), 0);
    for segment in without_origin(path).split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
        out.push(b'/');
        if !is_variable(segment) {
            out.extend_from_slice(segment);
            continue;
        }
        variables += 1;
        match variables {
            1 => out.extend_from_slice(b"{id}"),
            2..=MAX_VARIABLES => out.extend_from_slice(&[b'{', b'i', b'd', b'0' + variables as u8, b'}']),
            _ => {
                out.truncate(start);
                return out.extend_from_slice(OTHER.as_bytes());
            }
        }
    }
    if out.len() == start {
        out.push(b'/');
    }
}

/// Returns the path alone, without query, fragment, scheme and host.
fn without_origin(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or(path);
    let scheme = path.iter().position(|byte| *byte == b'/').and_then(|slash| slash.checked_sub(1));
    let Some(scheme) = scheme.filter(|at| path.get(*at..).is_some_and(|rest| rest.starts_with(b"://")))
    else {
        return path;
    };
    let rest = path.get(scheme + 3..).unwrap_or_default();
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    rest.get(slash..).unwrap_or_default()
}

/// Returns a route with every framework's variables written as `{}`. None when the route has no
/// variables.
fn without_variables(route: &[u8]) -> Option<Vec<u8>> {
    if !route.iter().any(|byte| matches!(byte, b'{' | b'<' | b':' | b'*')) {
        return None;
    }
    let (mut out, mut rest) = (Vec::with_capacity(route.len()), route);
    while let Some((first, after)) = rest.split_first() {
        let length = variable_length(rest);
        if length == 0 {
            out.push(*first);
            rest = after;
        } else {
            out.extend_from_slice(b"{}");
            rest = rest.get(length..).unwrap_or_default();
        }
    }
    Some(out)
}

/// Length of the variable at the start of the text: `{...}`, `<...>`, `:name` or `*name`. 0 when
/// there is none.
fn variable_length(text: &[u8]) -> usize {
    let word = |bytes: &[u8]| bytes.iter().take_while(|byte| is_word(**byte)).count();
    let enclosed = |open: u8, close: u8, inside: &[u8]| {
        let end = inside.iter().position(|byte| *byte == open || *byte == close);
        end.filter(|end| inside.get(*end) == Some(&close)).map_or(0, |end| end + 2)
    };
    match text {
        [b'{', inside @ ..] => enclosed(b'{', b'}', inside),
        [b'<', inside @ ..] => enclosed(b'<', b'>', inside),
        [b':', name @ ..] if name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_') => {
            1 + word(name)
        }
        [b'*', ..] => {
            let stars = text.iter().take_while(|byte| **byte == b'*').count();
            stars + word(text.get(stars..).unwrap_or_default())
        }
        _ => 0,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a path segment looks like the name of a single thing, rather than of a kind of thing.
pub fn is_identifier(segment: &[u8]) -> bool {
    let (mut digits, mut hex) = (0, 0);
    for byte in segment {
        if !is_literal_byte(*byte) {
            return true;
        }
        digits += usize::from(byte.is_ascii_digit());
        hex += usize::from(byte.is_ascii_hexdigit());
    }
    if digits > 0 && is_version(segment) {
        return false;
    }
    if segment.len() > MAX_SEGMENT || digits >= 2 {
        return true;
    }
    is_hash(segment, hex, digits) || is_uuid(segment, hex) || digits == 1 && is_number(segment)
}

/// Whether a segment is a hash: eight or more hex digits. Without any decimal digit among them, it
/// needs the prefix `0x` or at least 16 digits.
fn is_hash(segment: &[u8], hex: usize, digits: usize) -> bool {
    let (prefix, needed) = if segment.starts_with(b"0x") { (2, 9) } else { (0, 8) };
    let all = hex + prefix.min(1) == segment.len();
    all && hex >= needed && (digits > 0 || segment.len() >= 16)
}

/// Whether a segment is a number with a single digit. Segments with more digits are identifiers
/// anyway.
fn is_number(segment: &[u8]) -> bool {
    matches!(segment, [_] | [b'+' | b'-', _])
}

/// Whether a segment is a UUID: 8-4-4-4-12 hex digits, with or without dashes.
fn is_uuid(segment: &[u8], hex: usize) -> bool {
    if hex != 32 || segment.len() > 36 {
        return false;
    }
    let mut rest = segment;
    for length in [8, 4, 4, 4, 12] {
        let Some((digits, after)) = rest.split_at_checked(length) else { return false };
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after.strip_prefix(b"-").filter(|_| length != 12).unwrap_or(after);
    }
    rest.is_empty()
}

/// Whether a segment is a version, such as `v1`, `V2.1_3` or `v1beta2`.
fn is_version(segment: &[u8]) -> bool {
    let Some(mut rest) = segment.strip_prefix(b"v").or_else(|| segment.strip_prefix(b"V")) else {
        return false;
    };
    loop {
        let digits = leading_digits(rest);
        if digits == 0 {
            return false;
        }
        rest = rest.get(digits..).unwrap_or_default();
        match rest {
            [b'.' | b'_', after @ ..] => rest = after,
            _ => break,
        }
    }
    let stage = [b"alpha".as_slice(), b"beta", b"rc"].into_iter().find_map(|stage| rest.strip_prefix(stage));
    let rest = stage.map_or(rest, |after| after.get(leading_digits(after)..).unwrap_or_default());
    rest.is_empty()
}

fn leading_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn is_literal(segment: &[u8]) -> bool {
    segment.iter().all(|byte| is_literal_byte(*byte))
}

fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@".contains(&byte)
}
