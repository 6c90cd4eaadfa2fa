//! Reads one Span message from its wire format.

use crate::decode::attributes::{MAX_ATTRIBUTES, Slots};
use crate::decode::wire::{BYTES, Broken, FIXED64, Reader, VARINT, tag};

const TRACE_ID: u32 = tag(1, BYTES);
const SPAN_ID: u32 = tag(2, BYTES);
const TRACE_STATE: u32 = tag(3, BYTES);
const PARENT_ID: u32 = tag(4, BYTES);
const NAME: u32 = tag(5, BYTES);
const KIND: u32 = tag(6, VARINT);
const START: u32 = tag(7, FIXED64);
const END: u32 = tag(8, FIXED64);
const ATTRIBUTES: u32 = tag(9, BYTES);
const STATUS: u32 = tag(15, BYTES);
const STATUS_CODE: u32 = tag(3, VARINT);
/// Value of Status.code for a failure.
const ERROR: u32 = 2;

/// The fields of a Span apart from its attributes.
#[derive(Debug, Default)]
pub struct RawSpan<'a> {
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
    pub parent_id: &'a [u8],
    pub trace_state: &'a [u8],
    pub name: &'a [u8],
    pub kind: i32,
    /// Start in Unix nanoseconds.
    pub start: u64,
    /// End in Unix nanoseconds.
    pub end: u64,
    pub is_error: bool,
    /// Number of attributes that were not read because there are too many.
    pub attributes_beyond: u64,
}

impl<'a> RawSpan<'a> {
    /// Reads a Span message and writes its attributes into `attributes`, which must be empty.
    #[inline]
    pub fn read(message: &'a [u8], attributes: &mut Slots<'a>) -> Result<Self, Broken> {
        let (mut raw, mut count) = (RawSpan::default(), 0);
        let mut fields = Reader::new(message);
        while let Some(field) = fields.tag()? {
            match field {
                ATTRIBUTES if count < MAX_ATTRIBUTES => {
                    attributes.add(fields.bytes()?)?;
                    count += 1;
                }
                ATTRIBUTES => {
                    fields.skip(field)?;
                    raw.attributes_beyond += 1;
                }
                TRACE_ID => raw.trace_id = fields.bytes()?,
                SPAN_ID => raw.span_id = fields.bytes()?,
                TRACE_STATE => raw.trace_state = fields.bytes()?,
                PARENT_ID => raw.parent_id = fields.bytes()?,
                NAME => raw.name = fields.bytes()?,
                // Enumerations are 32 bits wide.
                KIND => raw.kind = fields.varint()? as i32,
                START => raw.start = fields.fixed64()?,
                END => raw.end = fields.fixed64()?,
                STATUS => raw.status(fields.bytes()?)?,
                other => fields.skip(other)?,
            }
        }
        Ok(raw)
    }

    fn status(&mut self, message: &[u8]) -> Result<(), Broken> {
        let mut fields = Reader::new(message);
        while let Some(field) = fields.tag()? {
            match field {
                STATUS_CODE => self.is_error = fields.varint()? as u32 == ERROR,
                other => fields.skip(other)?,
            }
        }
        Ok(())
    }
}
