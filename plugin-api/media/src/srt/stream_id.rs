//! The `streamid` of a caller: a plain text, or the fields of the access control syntax (appendix B).

/// Begins a `streamid` with fields.
const FIELDS: &str = "#!::";

/// What a caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Send a stream; also when nothing is said.
    Publish,
    /// Anything else.
    Other,
}

/// The parts of a `streamid` that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId<'a> {
    /// The resource (`r`), which is the whole text without fields; it may be empty.
    pub resource: &'a str,
    /// The mode (`m`).
    pub mode: Mode,
}

impl<'a> StreamId<'a> {
    /// Reads a `streamid`. Unknown fields are skipped; of repeated ones the last counts.
    pub fn parse(text: &'a str) -> Self {
        let Some(fields) = text.strip_prefix(FIELDS) else {
            return Self { resource: text, mode: Mode::Publish };
        };
        let mut read = Self { resource: "", mode: Mode::Publish };
        for (name, value) in fields.split(',').filter_map(|field| field.split_once('=')) {
            match name.trim() {
                "r" => read.resource = value.trim(),
                "m" if value.trim() == "publish" => read.mode = Mode::Publish,
                "m" => read.mode = Mode::Other,
                _ => {}
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_texts_and_fields_are_read() {
        for (text, resource, mode) in [
            ("", "", Mode::Publish),
            ("live_x", "live_x", Mode::Publish),
            ("#!::r=live_x,m=publish", "live_x", Mode::Publish),
            ("#!::u=me,m=publish,r= live_x ,h=host,x=1,odd", "live_x", Mode::Publish),
            ("#!::r=live_x", "live_x", Mode::Publish),
            ("#!::r=live_x,m=request", "live_x", Mode::Other),
            ("#!::r=live_x,m=", "live_x", Mode::Other),
            ("#!::m=publish", "", Mode::Publish),
            ("#!::", "", Mode::Publish),
            ("#!:{r=live_x}", "#!:{r=live_x}", Mode::Publish),
        ] {
            assert_eq!(StreamId::parse(text), StreamId { resource, mode }, "{text}");
        }
    }
}
