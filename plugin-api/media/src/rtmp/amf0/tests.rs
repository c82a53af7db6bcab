//! Round trips, and truncated, hostile and unsupported values.

use super::*;

fn sample() -> Vec<Value> {
    vec![
        Value::String("connect".into()),
        Value::Number(1.0),
        Value::Object(vec![
            ("app".into(), Value::String("live".into())),
            ("yes".into(), Value::Boolean(true)),
            ("list".into(), Value::StrictArray(vec![Value::Null, Value::Undefined, Value::Date(5.0)])),
            ("map".into(), Value::EcmaArray(vec![("".into(), Value::Number(-0.5))])),
        ]),
        Value::String("x".repeat(70_000)),
    ]
}

#[test]
fn values_survive_a_round_trip() {
    let values = sample();
    assert_eq!(decode_all(&encode_all(&values)), Ok(values));
}

#[test]
fn truncation_at_any_byte_is_an_error_or_a_shorter_list() {
    let values = &sample()[..3];
    let bytes = encode_all(values);
    for end in 0..bytes.len() {
        match decode_all(&bytes[..end]) {
            Ok(read) => assert_eq!(read[..], values[..read.len()], "cut at {end}"),
            Err(error) => assert_eq!(error, Amf0Error::Truncated, "cut at {end}"),
        }
    }
}

fn nested(depth: usize) -> Vec<u8> {
    let mut value = Value::Null;
    for _ in 1..depth {
        value = Value::Object(vec![("a".into(), value)]);
    }
    encode_all(&[value])
}

#[test]
fn depth_is_limited() {
    assert!(decode_all(&nested(AMF_DEPTH_MAX)).is_ok());
    assert_eq!(decode_all(&nested(AMF_DEPTH_MAX + 1)), Err(Amf0Error::TooDeep));
    // An object opened 20,000 times: refused without recursion that deep.
    let mut hostile = Vec::new();
    for _ in 0..20_000 {
        hostile.extend_from_slice(&[OBJECT, 0, 1, b'a']);
    }
    assert_eq!(decode_all(&hostile), Err(Amf0Error::TooDeep));
    let arrays: Vec<u8> = [STRICT_ARRAY, 0, 0, 0, 1].repeat(20_000);
    assert_eq!(decode_all(&arrays), Err(Amf0Error::TooDeep));
}

#[test]
fn count_is_limited() {
    let top = |count| encode_all(&vec![Value::Null; count]);
    assert_eq!(decode_all(&top(AMF_TOP_VALUES_MAX)).map(|v| v.len()), Ok(AMF_TOP_VALUES_MAX));
    assert_eq!(decode_all(&top(AMF_TOP_VALUES_MAX + 1)), Err(Amf0Error::TooMany));
    let array = |count| encode_all(&[Value::StrictArray(vec![Value::Null; count])]);
    assert!(decode_all(&array(AMF_VALUES_MAX - 1)).is_ok());
    assert_eq!(decode_all(&array(AMF_VALUES_MAX)), Err(Amf0Error::TooMany));
}

#[test]
fn announced_lengths_do_not_allocate() {
    assert_eq!(decode_all(&[STRICT_ARRAY, 255, 255, 255, 255]), Err(Amf0Error::Truncated));
    assert_eq!(decode_all(&[LONG_STRING, 255, 255, 255, 255]), Err(Amf0Error::Truncated));
}

#[test]
fn foreign_types_are_read_or_refused() {
    let typed = [TYPED_OBJECT, 0, 1, b'C', 0, 1, b'a', NULL, 0, 0, OBJECT_END];
    assert_eq!(decode_all(&typed), Ok(vec![Value::Object(vec![("a".into(), Value::Null)])]));
    assert_eq!(decode_all(&[XML_DOCUMENT, 0, 0, 0, 1, b'x']), Ok(vec![Value::String("x".into())]));
    for marker in [0x04, 0x07, 0x0d, 0x0e, 0x11, 0xff] {
        assert_eq!(decode_all(&[marker, 0, 0]), Err(Amf0Error::Marker(marker)));
    }
}

#[test]
fn text_of_another_encoding_is_read_with_replacements() {
    let latin = [STRING, 0, 5, b'g', b'r', 0xfc, b'n', b'!', LONG_STRING, 0, 0, 0, 2, 0xc4, 0xe3];
    let texts = ["gr\u{fffd}n!", "\u{fffd}\u{fffd}"].map(|text| Value::String(text.into()));
    assert_eq!(decode_all(&latin), Ok(texts.to_vec()));
    // In the worst case one byte becomes three.
    let all_wrong = [&[STRING, 0xff, 0xff], &[0xff; 0xffff][..]].concat();
    let values = decode_all(&all_wrong).expect("readable");
    assert_eq!(values[0].text().map(str::len), Some(3 * 0xffff));
    let name = [OBJECT, 0, 1, 0xfc, NULL, 0, 0, OBJECT_END];
    assert_eq!(decode_all(&name), Ok(vec![Value::Object(vec![("\u{fffd}".into(), Value::Null)])]));
}

#[test]
fn the_front_of_a_damaged_body_is_read_and_limits_hold() {
    let front = [Value::Null, Value::Number(1.0)];
    let bytes = encode_all(&front);
    for (tail, error) in [
        (&[][..], None),
        (&[0x11, 1, 2], Some(Amf0Error::Marker(0x11))),
        (&[OBJECT, 0, 1, b'a', 0x0d], Some(Amf0Error::Marker(0x0d))),
        (&[STRING, 0, 9], Some(Amf0Error::Truncated)),
    ] {
        let body = [&bytes, tail].concat();
        assert_eq!(decode_front(&body), Ok((front.to_vec(), error)));
        assert_eq!(decode_all(&body).err(), error);
    }
    let deep = [bytes, nested(AMF_DEPTH_MAX + 1)].concat();
    assert_eq!(decode_front(&deep), Err(Amf0Error::TooDeep));
    let many = encode_all(&vec![Value::Null; AMF_TOP_VALUES_MAX + 1]);
    assert_eq!(decode_front(&many), Err(Amf0Error::TooMany));
}

#[test]
fn long_names_are_cut_at_a_character() {
    let name = "é".repeat(40_000);
    let bytes = encode_all(&[Value::Object(vec![(name, Value::Null)])]);
    let values = decode_all(&bytes).expect("readable");
    let members = values[0].members().expect("object");
    assert_eq!(members[0].0.len(), 65_534);
}
