//! Rows in their output format: one buffer per column, and text as codes of one dictionary.

use crate::memory::names::{Names, Sym};

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    I64(Vec<i64>),
    U64(Vec<u64>),
    F64(Vec<f64>),
    Bool(Vec<u8>),
    /// Indices into `Batch::dictionary`.
    Text(Vec<u32>),
    /// Lower-case hex digits of a fixed width, one id after the other. An absent id is written as
    /// NUL bytes.
    Hex(Vec<u8>),
}

/// The rows that go to one partition of a topic in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// tick << 10 | chunk
    pub sequence: u64,
    pub partition: u32,
    pub start: usize,
    pub end: usize,
}

/// The rows of one table, as columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub rows: usize,
    pub columns: Vec<(&'static str, Column)>,
    pub dictionary: Vec<String>,
    /// The slices, in the order of the rows. Empty if the rows have no identity of their own in a
    /// topic.
    pub slices: Vec<Slice>,
}

/// Rows of one message. Larger messages would be split again on the way.
pub const SLICE_ROWS: usize = 20_000;
const CHUNKS: usize = 1 << 10;

impl Batch {
    /// Cuts the rows from `start` on, which are all of one tick and partition, into slices.
    pub(crate) fn slice(&mut self, tick: i64, partition: u32, start: usize) {
        let first = (tick as u64) << 10;
        let chunks = (self.rows - start).div_ceil(SLICE_ROWS).min(CHUNKS);
        for chunk in 0..chunks {
            let begin = start + chunk * SLICE_ROWS;
            let end = if chunk + 1 == chunks { self.rows } else { begin + SLICE_ROWS };
            self.slices.push(Slice { sequence: first | chunk as u64, partition, start: begin, end });
        }
    }
}

/// Assigns codes to the strings of one batch, in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    codes: Vec<u32>,
    used: Vec<Sym>,
}

const NO_CODE: u32 = u32::MAX;

impl Dictionary {
    /// Returns the code of a string, and assigns the next one when the string is new.
    pub fn code(&mut self, sym: Sym) -> u32 {
        let at = sym.0 as usize;
        if at >= self.codes.len() {
            self.codes.resize((at + 1).next_power_of_two(), NO_CODE);
        }
        let code = &mut self.codes[at];
        if *code == NO_CODE {
            *code = self.used.len() as u32;
            self.used.push(sym);
        }
        *code
    }

    /// Returns the texts in the order of their codes.
    fn texts(self, names: &Names) -> Vec<String> {
        self.used.into_iter().map(|sym| names.text(sym).to_owned()).collect()
    }
}

/// Columns under construction.
pub(crate) trait Table {
    fn reserve(&mut self, rows: usize);
    fn columns(self) -> Vec<(&'static str, Column)>;
}

/// A batch under construction.
#[derive(Debug, Default)]
pub(crate) struct Sheet<T> {
    pub table: T,
    pub batch: Batch,
    pub dictionary: Dictionary,
}

impl<T: Table> Sheet<T> {
    pub fn finish(mut self, names: &Names) -> Batch {
        self.batch.columns = self.table.columns();
        self.batch.dictionary = self.dictionary.texts(names);
        self.batch
    }
}

/// Declares the columns of a batch: one typed vector per column, in the order of the columns.
macro_rules! table {
    ($(#[$about:meta])* $name:ident { $($field:ident $text:literal: $kind:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub(crate) struct $name { $(pub $field: $crate::output::columns::kind::$kind),* }

        impl $crate::output::columns::Table for $name {
            fn reserve(&mut self, rows: usize) {
                $(self.$field.reserve(rows * $crate::output::columns::width::$kind);)*
            }

            fn columns(self) -> Vec<(&'static str, $crate::output::columns::Column)> {
                vec![$(($text, $crate::output::columns::Column::$kind(self.$field))),*]
            }
        }
    };
}
pub(crate) use table;

#[allow(non_camel_case_types)]
pub(crate) mod kind {
    pub type I64 = Vec<i64>;
    pub type U64 = Vec<u64>;
    pub type F64 = Vec<f64>;
    pub type Bool = Vec<u8>;
    pub type Text = Vec<u32>;
    pub type Hex = Vec<u8>;
}

/// Elements per row.
#[allow(non_upper_case_globals)]
pub(crate) mod width {
    pub const I64: usize = 1;
    pub const U64: usize = 1;
    pub const F64: usize = 1;
    pub const Bool: usize = 1;
    pub const Text: usize = 1;
    pub const Hex: usize = 32;
}

const DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = [digits[i >> 4], digits[i & 15]];
        i += 1;
    }
    table
};

/// Appends bytes as two hexadecimal digits each.
pub(crate) fn put_hex<const N: usize>(bytes: [u8; N], out: &mut Vec<u8>) {
    let mut text = [[0; 2]; N];
    for (digits, byte) in text.iter_mut().zip(bytes) {
        *digits = DIGITS[byte as usize];
    }
    out.extend_from_slice(text.as_flattened());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_messages_that_are_numbered_within_their_tick() {
        let mut batch = Batch { rows: 50_000, ..Batch::default() };
        batch.slice(3, 1, 5_000);
        let found: Vec<_> = batch.slices.iter().map(|s| (s.sequence, s.partition, s.start, s.end)).collect();
        assert_eq!(found, [(3072, 1, 5_000, 25_000), (3073, 1, 25_000, 45_000), (3074, 1, 45_000, 50_000)]);
    }

    #[test]
    fn ids_are_written_as_lower_case_hex() {
        let mut out = Vec::new();
        put_hex(0x00ab_cdef_0123_4567_u64.to_be_bytes(), &mut out);
        assert_eq!(out, b"00abcdef01234567");
    }
}
