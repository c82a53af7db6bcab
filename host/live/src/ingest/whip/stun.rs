//! Reads the user name of a STUN request, which leads it to its sender (RFC 8489). str0m checks the rest, and its signature.

/// Type of a binding request.
const BINDING_REQUEST: [u8; 2] = [0, 1];
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const HEAD_BYTES: usize = 20;
const USERNAME: u16 = 6;

/// Our part of the user name in a binding request, which is the one in front (RFC 8445, 7.1.2); `None` for any other datagram.
pub(super) fn local_name(datagram: &[u8]) -> Option<&str> {
    let (head, mut rest) = datagram.split_first_chunk::<HEAD_BYTES>()?;
    if head[..2] != BINDING_REQUEST || head[4..8] != MAGIC_COOKIE {
        return None;
    }
    loop {
        let (&[kind_high, kind_low, high, low], behind) = rest.split_first_chunk::<4>()?;
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        if u16::from_be_bytes([kind_high, kind_low]) == USERNAME {
            let name = std::str::from_utf8(behind.get(..bytes)?).ok()?;
            return Some(name.split_once(':')?.0);
        }
        // Attributes are padded to four bytes.
        rest = behind.get(bytes.next_multiple_of(4)..)?;
    }
}

/// Whether a datagram is STUN, by its first byte (RFC 7983, 7).
pub(super) fn is_stun(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| *first < 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut datagram = [&BINDING_REQUEST[..], &[0, 0], &MAGIC_COOKIE, &[7; 12]].concat();
        for (kind, value) in attributes {
            datagram.extend(kind.to_be_bytes());
            datagram.extend((value.len() as u16).to_be_bytes());
            datagram.extend_from_slice(value);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        datagram
    }

    #[test]
    fn the_name_is_found_behind_other_attributes() {
        let whole =
            request(&[(0x24, &[1, 2, 3, 4]), (0x8022, b"agent"), (USERNAME, b"ours:theirs"), (8, &[0; 20])]);
        assert_eq!(local_name(&whole), Some("ours"));
        assert!(is_stun(&whole));
        for end in 0..whole.len() {
            let _any = local_name(&whole[..end]);
        }
    }

    #[test]
    fn other_datagrams_have_no_name() {
        let named = request(&[(USERNAME, b"ours:theirs")]);
        let with = |at: usize, byte: u8| {
            let mut other = named.clone();
            other[at] = byte;
            local_name(&other).map(str::to_owned)
        };
        assert_eq!(with(9, 0).as_deref(), Some("ours"));
        for (at, byte) in [(1, 0x11), (0, 0x80), (4, 0), (21, 7), (23, 200), (24, 0xff), (28, b'x')] {
            assert_eq!(with(at, byte), None, "{byte} at {at}");
        }
        for other in [&[][..], &[0x80; 200], &[22; 60], &request(&[])] {
            assert_eq!(local_name(other), None);
        }
    }
}
