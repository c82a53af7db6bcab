//! Bits and Exp-Golomb numbers of a raw byte sequence payload (ISO/IEC 14496-10, 7.2 and 9.1).

use super::CodecError;

/// Reads bits, optionally without emulation prevention bytes.
#[derive(Debug, Clone)]
pub(crate) struct BitReader<'a> {
    rest: &'a [u8],
    byte: u8,
    bits_left: u32,
    zeros: u32,
    escaped: bool,
}

impl<'a> BitReader<'a> {
    /// Reader over plain bytes.
    pub(crate) fn plain(bytes: &'a [u8]) -> Self {
        BitReader { rest: bytes, byte: 0, bits_left: 0, zeros: 0, escaped: false }
    }

    /// Reader over a NAL unit, where 00 00 03 means 00 00.
    pub(crate) fn nal(bytes: &'a [u8]) -> Self {
        BitReader { escaped: true, ..Self::plain(bytes) }
    }

    fn next_byte(&mut self) -> Result<u8, CodecError> {
        let (&byte, rest) = self.rest.split_first().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        if self.escaped && self.zeros >= 2 && byte == 3 {
            self.zeros = 0;
            let (&byte, rest) = self.rest.split_first().ok_or(CodecError::Truncated)?;
            self.rest = rest;
            self.zeros = u32::from(byte == 0);
            return Ok(byte);
        }
        self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        Ok(byte)
    }

    /// One bit.
    pub(crate) fn flag(&mut self) -> Result<bool, CodecError> {
        Ok(self.bits(1)? != 0)
    }

    /// Up to 32 bits, most significant bit first.
    pub(crate) fn bits(&mut self, count: u32) -> Result<u32, CodecError> {
        let mut value: u64 = 0;
        let mut missing = count.min(32);
        while missing > 0 {
            if self.bits_left == 0 {
                self.byte = self.next_byte()?;
                self.bits_left = 8;
            }
            let step = missing.min(self.bits_left);
            self.bits_left -= step;
            let bits = (u32::from(self.byte) >> self.bits_left) & ((1 << step) - 1);
            value = (value << step) | u64::from(bits);
            missing -= step;
        }
        Ok(value as u32)
    }

    /// Skips bits.
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), CodecError> {
        for _ in 0..count / 32 {
            self.bits(32)?;
        }
        self.bits(count % 32).map(drop)
    }

    /// Bits that are left; for plain bytes only, because emulation prevention bytes count too.
    pub(crate) fn left(&self) -> usize {
        self.rest.len() * 8 + self.bits_left as usize
    }

    /// Unsigned Exp-Golomb number, at most 2^32 - 2.
    pub(crate) fn ue(&mut self) -> Result<u32, CodecError> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return Err(CodecError::Field("exp-golomb number"));
            }
        }
        Ok(((1u64 << zeros) - 1) as u32 + self.bits(zeros)?)
    }

    /// Signed Exp-Golomb number.
    pub(crate) fn se(&mut self) -> Result<i64, CodecError> {
        let code = i64::from(self.ue()?);
        Ok(if code % 2 == 0 { -(code / 2) } else { (code + 1) / 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_cross_bytes() {
        let mut reader = BitReader::plain(&[0b1010_0101, 0xff, 0, 1, 2, 3]);
        assert_eq!(reader.bits(3), Ok(0b101));
        assert_eq!(reader.bits(7), Ok(0b001_0111));
        assert_eq!(reader.left(), 38);
        assert_eq!(reader.skip(6), Ok(()));
        assert_eq!(reader.bits(32), Ok(0x0001_0203));
        assert_eq!(reader.left(), 0);
        assert_eq!(reader.bits(0), Ok(0));
        assert_eq!(reader.bits(1), Err(CodecError::Truncated));
    }

    #[test]
    fn exp_golomb_numbers_follow_the_table() {
        // 1, 010, 011, 00100, 00101 and 00110: 0 to 5.
        let mut reader = BitReader::plain(&[0b1010_0110, 0b0100_0010, 0b1001_1000]);
        for expected in 0..=5 {
            assert_eq!(reader.ue(), Ok(expected));
        }
        let mut reader = BitReader::plain(&[0b1010_0110, 0b0100_0010, 0b1001_1000]);
        for expected in [0, 1, -1, 2, -2, 3] {
            assert_eq!(reader.se(), Ok(expected));
        }
        let mut longest = BitReader::plain(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(longest.ue(), Ok(u32::MAX - 1));
        let mut endless = BitReader::plain(&[0; 8]);
        assert_eq!(endless.ue(), Err(CodecError::Field("exp-golomb number")));
    }

    #[test]
    fn emulation_prevention_bytes_are_skipped() {
        let bytes = [0, 0, 3, 1, 0, 0, 3, 0, 0, 3, 2];
        let mut reader = BitReader::nal(&bytes);
        let read: Vec<u32> = std::iter::from_fn(|| reader.bits(8).ok()).collect();
        assert_eq!(read, [0, 0, 1, 0, 0, 0, 0, 2]);
        assert_eq!(BitReader::plain(&bytes).bits(32), Ok(0x0000_0301));
        assert_eq!(BitReader::nal(&[0, 0, 3]).bits(24), Err(CodecError::Truncated));
    }
}
