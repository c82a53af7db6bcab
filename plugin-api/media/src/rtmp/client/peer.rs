//! Codecs that a server announces in its answer to `connect` (Enhanced RTMP v1 and v2, "Enhancing NetConnection connect Command").

use crate::Codec;
use crate::flv::codec_of_fourcc;
use crate::rtmp::amf0::Value;

/// Stands for every codec.
const ANY: &str = "*";
/// Codecs that need Enhanced RTMP; the others are older, and every server accepts them.
const ENHANCED: [Codec; 3] = [Codec::Hevc, Codec::Av1, Codec::Opus];

/// The Enhanced RTMP codecs that a server accepts; none if it announces nothing.
pub(super) fn announced(args: &[Value]) -> Vec<Codec> {
    let names: Vec<&str> = args.iter().flat_map(names).collect();
    let is_named = |codec: &Codec| {
        let is_it = |name: &&str| name.as_bytes().try_into().ok().and_then(codec_of_fourcc) == Some(*codec);
        names.iter().any(|name| *name == ANY || is_it(name))
    };
    ENHANCED.into_iter().filter(is_named).collect()
}

fn names(object: &Value) -> Vec<&str> {
    let listed = match object.member("fourCcList") {
        Some(Value::StrictArray(list)) => list.iter().filter_map(Value::text).collect(),
        _ => Vec::new(),
    };
    let maps =
        ["videoFourCcInfoMap", "audioFourCcInfoMap"].into_iter().filter_map(|name| object.member(name));
    let keys = maps.flat_map(|map| match map {
        Value::Object(members) | Value::EcmaArray(members) => members.as_slice(),
        _ => &[],
    });
    listed.into_iter().chain(keys.map(|(name, _)| name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtmp::message::text;

    fn object(name: &str, value: Value) -> Value {
        Value::Object(vec![(name.to_owned(), value)])
    }

    #[test]
    fn every_form_of_the_lists_is_understood() {
        let map = |names: &[&str]| {
            let members = names.iter().map(|name| ((*name).to_owned(), Value::Number(4.0)));
            Value::Object(members.collect())
        };
        let list = |names: &[&str]| Value::StrictArray(names.iter().map(|name| text(name)).collect());
        for (args, codecs) in [
            (vec![], vec![]),
            (vec![Value::Null, object("code", text("NetConnection.Connect.Success"))], vec![]),
            (vec![Value::Null, object("fourCcList", list(&["av01", "hvc1"]))], vec![Codec::Hevc, Codec::Av1]),
            (vec![object("fourCcList", list(&["*"]))], ENHANCED.to_vec()),
            (vec![object("videoFourCcInfoMap", map(&["hvc1", "avc1", "vp09"]))], vec![Codec::Hevc]),
            (vec![object("audioFourCcInfoMap", map(&["Opus", "mp4a", ""]))], vec![Codec::Opus]),
            (vec![object("fourCcList", text("hvc1"))], vec![]),
            (vec![object("videoFourCcInfoMap", list(&["hvc1"]))], vec![]),
        ] {
            assert_eq!(announced(&args), codecs, "{args:?}");
        }
    }
}
