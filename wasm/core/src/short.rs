//! Text of bounded length on the stack, for header values that are written for every request.

/// ASCII text of at most `N` characters. Characters beyond that are left out.
#[derive(Clone, Copy, Debug)]
pub struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Short<N> {
    /// Appends ASCII text.
    pub fn push(&mut self, text: &str) -> &mut Self {
        text.bytes().filter(u8::is_ascii).for_each(|byte| self.put(byte));
        self
    }

    /// Appends two lower-case hexadecimal digits per byte.
    pub fn push_hex(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            for nibble in [byte >> 4, byte & 0x0f] {
                self.put(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
            }
        }
        self
    }

    /// Appends a decimal number.
    pub fn push_decimal(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [b'0'; 20];
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
            count += 1;
            if number == 0 {
                break;
            }
        }
        digits.iter().skip(20 - count).for_each(|digit| self.put(*digit));
        self
    }

    fn put(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }
}

impl<const N: usize> std::ops::Deref for Short<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Text that does not fit is left out. Text that was appended before stays unchanged.
    #[test]
    fn bounded() {
        let mut text = Short::<6>::default();
        assert_eq!(text.push("ab").push_hex(&[0x0f, 0xa0]).push("c").to_string(), "ab0fa0");
    }

    proptest! {
        /// Numbers and bytes are formatted as the standard library formats them.
        #[test]
        fn as_the_standard_library(number: u64, bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(Short::<32>::default().push_hex(&bytes).to_string(), expected);
            prop_assert_eq!(Short::<20>::default().push_decimal(number).to_string(), number.to_string());
        }
    }
}
