//! Reader of the protobuf fields of a byte slice, without copies. Lengths are checked against the
//! available bytes.

/// The reason why bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

const TRUNCATED: Broken = Broken("it ends within a field");
/// Largest nesting of groups, as in other protobuf readers. Nothing here uses groups.
const MAX_GROUPS: usize = 100;

/// Encoded tag of a field.
pub const fn tag(number: u32, wire_type: u32) -> u32 {
    number << 3 | wire_type
}

/// Wire types.
pub const VARINT: u32 = 0;
pub const FIXED64: u32 = 1;
pub const BYTES: u32 = 2;
pub const FIXED32: u32 = 5;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;

/// The remaining fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Reader(message)
    }

    /// Returns the next field's tag. None at the end of the message.
    #[inline(always)]
    pub fn tag(&mut self) -> Result<Option<u32>, Broken> {
        match self.0 {
            [] => Ok(None),
            [byte @ 0x08..=0x7f, rest @ ..] => {
                self.0 = rest;
                Ok(Some(u32::from(*byte)))
            }
            _ => self.long_tag(),
        }
    }

    #[inline(never)]
    fn long_tag(&mut self) -> Result<Option<u32>, Broken> {
        match u32::try_from(self.varint()?) {
            Ok(tag) if tag >> 3 != 0 => Ok(Some(tag)),
            _ => Err(Broken("a field has an impossible number")),
        }
    }

    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Broken> {
        match self.0 {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(TRUNCATED)?;
            self.0 = rest;
            if shift == 63 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Broken("a number has more than 64 bits"))
    }

    #[inline(always)]
    pub fn bytes(&mut self) -> Result<&'a [u8], Broken> {
        let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline(always)]
    pub fn fixed64(&mut self) -> Result<u64, Broken> {
        let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn fixed32(&mut self) -> Result<(), Broken> {
        let (_, rest) = self.0.split_first_chunk::<4>().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(())
    }

    /// Passes the bytes of every field with one tag to `take`, and skips all other fields.
    #[inline]
    pub fn each(
        mut self,
        wanted: u32,
        mut take: impl FnMut(&'a [u8]) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        while let Some(field) = self.tag()? {
            if field == wanted {
                take(self.bytes()?)?;
            } else {
                self.skip(field)?;
            }
        }
        Ok(())
    }

    /// Skips the value of a field.
    #[inline]
    pub fn skip(&mut self, tag: u32) -> Result<(), Broken> {
        match tag & 7 {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            BYTES => self.bytes().map(drop),
            FIXED32 => self.fixed32(),
            GROUP => self.skip_group(tag >> 3),
            GROUP_END => Err(Broken("a group ends without a start")),
            _ => Err(Broken("a field has an impossible type")),
        }
    }

    /// Returns the bytes between this position and a later position of the same reader.
    pub fn until(&self, later: &Reader<'a>) -> &'a [u8] {
        self.0.get(..self.0.len().saturating_sub(later.0.len())).unwrap_or_default()
    }

    #[cold]
    fn skip_group(&mut self, number: u32) -> Result<(), Broken> {
        let mut open = vec![number];
        while let Some(inner) = open.last().copied() {
            let tag = self.tag()?.ok_or(TRUNCATED)?;
            match tag & 7 {
                GROUP if open.len() == MAX_GROUPS => return Err(Broken("groups are nested too deeply")),
                GROUP => open.push(tag >> 3),
                GROUP_END if tag >> 3 == inner => drop(open.pop()),
                _ => self.skip(tag)?,
            }
        }
        Ok(())
    }
}

/// Appends a field whose value is already encoded.
pub fn put_raw(tag: u32, value: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(tag), out);
    out.extend_from_slice(value);
}

/// Appends a length-delimited field.
pub fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(tag(number, BYTES)), out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number that can be written is read back, and no bytes remain.
    #[test]
    fn numbers_of_every_length_are_read() {
        for value in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1]).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.tag(), Ok(None));
        }
    }

    /// Numbers above 64 bits, cut numbers, lengths beyond the end, field 0 and unknown types each
    /// have their own error.
    #[test]
    fn what_is_no_protobuf_is_an_error() {
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            while let Some(tag) = reader.tag()? {
                reader.skip(tag)?;
            }
            Ok::<_, Broken>(())
        };
        let eleven = [[0x08].as_slice(), &[0xff; 10]].concat();
        let deep = [0x0b; 101];
        for (bytes, error) in [
            (eleven.as_slice(), "more than 64 bits"),
            (&[0x08, 0x80], "ends within"),
            (&[0x0a, 0x05, 1], "ends within"),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "ends within"),
            (&[0x09, 1, 2], "ends within"),
            (&[0x0d, 1], "ends within"),
            (&[0x00], "impossible number"),
            (&[0x0e], "impossible type"),
            (&[0x0c], "without a start"),
            (&[0x0b, 0x14], "without a start"),
            (&[0x0b, 0x08, 1], "ends within"),
            (&deep, "nested too deeply"),
        ] {
            let found = read(bytes).unwrap_err();
            assert!(found.0.contains(error), "{bytes:x?}: {found:?}");
        }
        assert_eq!(read(&[0x0b, 0x13, 0x08, 1, 0x14, 0x0c, 0x10, 1]), Ok(()));
    }
}
