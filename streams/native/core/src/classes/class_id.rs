//! Traffic class ids: `service METHOD /path/{template}` (contracts, `traffic_class`).

/// Longest class id, in bytes. Longer texts are rejected.
pub const MAX_CLASS: usize = 2560;

/// Whether a text is a class id.
pub fn is_class_id(text: &str) -> bool {
    let mut parts = text.split(' ');
    let (Some(service), Some(method), Some(path), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    is_service(service.as_bytes()) && is_method(method.as_bytes()) && is_path(path)
}

/// Whether a service's name can be part of a class id: letters, digits and . _ - with a letter or
/// digit at both ends.
pub fn is_service(name: &[u8]) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    ends(name.first()) && ends(name.last()) && name.iter().all(inside)
}

fn is_method(method: &[u8]) -> bool {
    !method.is_empty() && method.iter().all(u8::is_ascii_uppercase)
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(|c: char| is_space(c) || matches!(c, '?' | '#'))
}

/// White space as defined by Python's regular expressions, which the contract uses.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}
