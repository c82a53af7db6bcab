use serde_json::{Value, json};

use super::*;
use crate::api::document::testing::accepts;

/// Validates with the driver's own schema.
fn original(schema: &Value, instance: &Value) -> bool {
    jsonschema::draft202012::options()
        .should_validate_formats(false)
        .build(schema)
        .unwrap()
        .is_valid(instance)
}

#[test]
fn options_secrets_constants_and_references_are_converted_to_3_0_3() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Target",
        "type": "object",
        "properties": {
            "url": {"type": "string", "maxLength": 2048, "examples": ["rtmp://a.example/app"], "format": "uri"},
            "key": {"anyOf": [{"$ref": "#/$defs/Secret"}, {"type": "null"}], "default": null, "x-secret": true},
            "port": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 65535, "format": "uint16"},
            "mode": {"oneOf": [{"const": "fast", "type": "string", "description": "Soon"},
                               {"const": "safe", "type": "string"}]},
            "either": {"type": ["string", "array"]},
            "old": {"type": "boolean", "deprecated": true, "default": false}
        },
        "required": ["url"],
        "additionalProperties": false,
        "$defs": {"Secret": {"type": "string", "description": "Kept from others", "x-secret": true}}
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "url": {"type": "string", "maxLength": 2048, "example": "rtmp://a.example/app"},
            "key": {"type": "string", "nullable": true, "writeOnly": true, "format": "password",
                    "description": "Kept from others"},
            "port": {"type": "integer", "nullable": true, "minimum": 0, "exclusiveMinimum": true, "maximum": 65535},
            "mode": {"type": "string", "enum": ["fast", "safe"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]},
            "old": {"type": "boolean", "deprecated": true, "default": false}
        },
        "required": ["url"],
        "additionalProperties": false
    });
    assert_eq!(config_schema(&schema), expected);
}

/// The document accepts everything that the driver accepts and, for plain schemas, nothing else.
#[test]
fn the_document_accepts_everything_the_driver_accepts() {
    let field = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let exact = [
        field(json!({"type": ["integer", "null"], "minimum": 2})),
        field(json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]})),
        field(json!({"enum": ["x", 3, null]})),
        field(json!({"const": "x"})),
        field(json!({"type": "number", "exclusiveMaximum": 3, "maximum": 5})),
        field(json!({"type": ["string", "integer"], "anyOf": [{"minLength": 2}, {"minimum": 2}]})),
        field(json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1})),
        field(json!({"allOf": [{"type": "integer"}, {"minimum": 3}]})),
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n", "maximum": 3}},
               "$defs": {"n": {"type": "integer", "minimum": 2}}}),
        json!({"required": ["a"], "additionalProperties": {"type": "string"}}),
    ];
    let wider = [
        field(json!({"oneOf": [{"type": "integer"}, {"type": "number", "not": {"minimum": 3}}]})),
        field(json!({"not": {"type": "string"}})),
        field(json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}})),
        field(json!({"if": {"type": "string"}, "then": {"maxLength": 1}})),
        field(json!({"pattern": "^(?i)x$", "type": "string"})),
        json!({"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": false}),
        json!({"propertyNames": {"maxLength": 1}, "unevaluatedProperties": false, "dependentRequired": {"a": ["b"]}}),
    ];
    let values = [
        json!(null),
        json!(1),
        json!(2),
        json!(3),
        json!(4),
        json!(2.5),
        json!("x"),
        json!("xx"),
        json!("xxx"),
        json!([]),
        json!([1]),
        json!([1, 2]),
        json!(["x", 1]),
        json!({}),
        json!(true),
    ];
    let instances = values.iter().map(|value| json!({"a": value})).chain([json!({}), json!({"b": 1})]);
    let instances: Vec<_> = instances.collect();
    for (schemas, is_exact) in [(exact.as_slice(), true), (wider.as_slice(), false)] {
        for schema in schemas {
            let converted = config_schema(schema);
            for instance in &instances {
                let (before, after) = (original(schema, instance), accepts(&converted, instance));
                assert!(after || !before, "{schema} takes {instance}, {converted} does not");
                assert!(!is_exact || before == after, "{converted} takes {instance}, {schema} does not");
            }
        }
    }
}

#[test]
fn hostile_schemas_become_plain_objects() {
    let plain = plain_object();
    let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let wide = |from: usize| {
        names
            .iter()
            .enumerate()
            .map(move |(n, name)| (name.clone(), json!({"$ref": format!("#/$defs/n{}", (from + n) % 40)})))
    };
    let defs = (0..40).map(|n| (format!("n{n}"), json!({"properties": wide(n).collect::<Map<_, _>>()})));
    let wide = json!({"$defs": defs.collect::<Map<_, _>>(), "properties": wide(0).collect::<Map<_, _>>()});
    let list: Vec<_> = (0..2_000).map(|n| json!({"description": format!("{n:0>100}")})).collect();
    let bomb = json!({"$defs": {"a": {"anyOf": vec![json!({"$ref": "#/$defs/b"}); 50]},
                                "b": {"enum": ["x".repeat(4_000)]}}, "$ref": "#/$defs/a"});
    for schema in [
        json!(true),
        json!(3),
        json!({"type": "string"}),
        json!({"type": "array"}),
        wide,
        json!({"allOf": list}),
        bomb,
    ] {
        let converted = config_schema(&schema);
        assert!(converted == plain || converted == json!({"type": "object"}), "{converted}");
    }
    let deep = config_schema(&json!({"type": "object", "properties": {"next": {"$ref": "#"}}}));
    assert_eq!(
        deep["properties"]["next"],
        json!({"type": "object", "properties": {"next": {}}}),
        "written out once"
    );
    let nested = (0..40).fold(json!({"type": "string"}), |inner, _| json!({"properties": {"in": inner}}));
    assert_eq!(config_schema(&nested).to_string().matches("in\"").count(), DEPTH_MAX);
    let lost = config_schema(&json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}}));
    assert_eq!(lost["properties"]["x"], json!({}));
    let loops = config_schema(&json!({"$ref": "#"}));
    assert_eq!(loops, json!({"type": "object"}));
}

#[test]
fn unknown_keywords_are_omitted() {
    let schema = json!({
        "type": "object", "minProperties": -1, "required": [], "description": "a\u{1b}[31m\nb", "x-own": 1,
        "properties": {"a": {"type": "strange", "maxLength": "3", "multipleOf": 0, "pattern": "\\p{L}", "enum": []}}
    });
    let expected = json!({"type": "object", "description": "a[31m\nb", "properties": {"a": {}}});
    assert_eq!(config_schema(&schema), expected);
    let long = config_schema(&json!({"description": "x".repeat(5_000)}));
    assert_eq!(long["description"].as_str().map(str::len), Some(TEXT_CHARS_MAX));
}

#[test]
fn secrets_have_no_examples() {
    let secret = json!({"type": "string", "x-secret": true, "default": "hunter2", "examples": ["hunter2"]});
    let schema = json!({"properties": {"a": secret, "b": {"$ref": "#/$defs/s", "default": "hunter2"}}, "$defs": {"s": secret}});
    let converted = config_schema(&schema).to_string();
    assert!(!converted.contains("hunter2") && converted.matches("\"password\"").count() == 2, "{converted}");
}
