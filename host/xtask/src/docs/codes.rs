//! The codes of the API: their declaration, and the statuses and texts at their uses.

use std::collections::{BTreeMap, BTreeSet};

use super::texts::{Sources, calls};
use super::tokens::Tokens;

/// Statuses and texts at a use of a code.
type Use = (Vec<&'static str>, Vec<String>);

/// Status of a body value that `choice` refuses.
const CHOICE_STATUS: &str = "422";
/// Code of the errors that `Place::malformed` makes.
const MALFORMED_FIELD: &str = "MalformedField";
/// Begins the texts about a value in a body.
const FIELD: &str = "Field `{field}` ";
/// Tokens of a pattern in front of `=>`.
const PATTERN_TOKENS_MAX: usize = 16;

const STATUSES: [(&str, &str); 16] = [
    ("BAD_REQUEST", "400"),
    ("UNAUTHORIZED", "401"),
    ("PAYMENT_REQUIRED", "402"),
    ("FORBIDDEN", "403"),
    ("NOT_FOUND", "404"),
    ("METHOD_NOT_ALLOWED", "405"),
    ("CONFLICT", "409"),
    ("PAYLOAD_TOO_LARGE", "413"),
    ("UNSUPPORTED_MEDIA_TYPE", "415"),
    ("RANGE_NOT_SATISFIABLE", "416"),
    ("UNPROCESSABLE_ENTITY", "422"),
    ("TOO_MANY_REQUESTS", "429"),
    ("INTERNAL_SERVER_ERROR", "500"),
    ("BAD_GATEWAY", "502"),
    ("SERVICE_UNAVAILABLE", "503"),
    ("GATEWAY_TIMEOUT", "504"),
];

/// Texts of the variants of error enums, by enum and variant.
pub(super) type Variants = BTreeMap<(String, String), Vec<String>>;

/// A code of the API as it is declared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Declared {
    /// Title of its group.
    pub(super) group: String,
    pub(super) variant: String,
    pub(super) name: String,
    pub(super) cause: String,
    pub(super) fix: String,
}

/// Statuses and texts of a code.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub(super) statuses: BTreeSet<&'static str>,
    pub(super) texts: Vec<String>,
}

/// Reads the declaration: `// Group.`, then for each code a line with its names, one with the cause, and one with the fix.
pub(super) fn declared(source: &str) -> Vec<Declared> {
    let lines = source.lines().skip_while(|line| *line != "codes! {").skip(1).take_while(|line| *line != "}");
    let mut group = String::new();
    let mut codes: Vec<Declared> = Vec::new();
    for line in lines.map(str::trim) {
        let literal = || line.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
        if let Some(title) = line.strip_prefix("// ") {
            group = title.trim_end_matches('.').to_owned();
        } else if let (true, Some((variant, _)), Some((name, _))) =
            (line.ends_with(':'), line.split_once(' '), literal())
        {
            let (group, variant, name) = (group.clone(), variant.to_owned(), name.to_owned());
            codes.push(Declared { group, variant, name, ..Declared::default() });
        } else if let (Some(code), Some((text, _))) = (codes.last_mut(), literal()) {
            let place = if line.ends_with(',') { &mut code.cause } else { &mut code.fix };
            *place = text.to_owned();
        }
    }
    codes
}

/// The uses of each declared code, in the order of the declaration.
///
/// # Errors
/// A code that is not used, and a use whose status is not known.
pub(super) fn uses(codes: &[Declared], sources: &Sources, variants: &Variants) -> Result<Vec<Uses>, String> {
    let reader = Reader { sources, variants, constructors: constructors(sources) };
    let mut uses: BTreeMap<&str, Uses> = BTreeMap::new();
    for tokens in &sources.files {
        for at in 0..tokens.len() {
            let found = tokens.path(at, "Code").map(|code| (code, reader.of_code(tokens, at)));
            let Some((code, (statuses, texts))) = found.or_else(|| reader.of_field(tokens, at)) else {
                continue;
            };
            if !codes.iter().any(|declared| declared.variant == code) {
                continue;
            }
            if statuses.is_empty() {
                return Err(format!(
                    "a use of Code::{code} has no status that this command knows; give it to a constructor of ApiError"
                ));
            }
            let uses = uses.entry(code).or_default();
            uses.statuses.extend(statuses);
            let texts = texts.into_iter().filter(|text| !text.contains("{self}"));
            for text in texts.map(|text| text.replace("{place}", FIELD.trim_end())) {
                if !uses.texts.contains(&text) {
                    uses.texts.push(text);
                }
            }
        }
    }
    let mut in_order = Vec::new();
    for code in codes {
        let unused = || {
            format!("no code uses the error code {} ({}); remove its declaration", code.variant, code.name)
        };
        in_order.push(uses.remove(code.variant.as_str()).ok_or_else(unused)?);
    }
    Ok(in_order)
}

/// Statuses of the functions that take a code: `Self::new(StatusCode::CONFLICT, code, ...)` in `fn conflict`.
fn constructors(sources: &Sources) -> BTreeMap<String, &'static str> {
    let mut constructors = BTreeMap::from([("choice".to_owned(), CHOICE_STATUS)]);
    for tokens in &sources.files {
        for at in (0..tokens.len()).filter(|at| tokens.is_word(*at, 5, "code")) {
            let name = tokens.function(at).and_then(|function| tokens.word(function, 1));
            if let (Some(status), Some(name)) = (tokens.path(at, "StatusCode").and_then(number), name) {
                constructors.insert(name.to_owned(), status);
            }
        }
    }
    constructors
}

fn number(status: &str) -> Option<&'static str> {
    STATUSES.iter().find(|(name, _)| *name == status).map(|(_, number)| *number)
}

struct Reader<'a> {
    sources: &'a Sources,
    variants: &'a Variants,
    constructors: BTreeMap<String, &'static str>,
}

impl Reader<'_> {
    /// Statuses and texts of the use of a code at `at`.
    fn of_code(&self, tokens: &Tokens, at: usize) -> Use {
        if tokens.is_word(at, -1, "or") {
            let list = tokens.opening(at.saturating_sub(2)).unwrap_or(at);
            let names = self.sources.texts(tokens, list..at);
            return (vec![CHOICE_STATUS], vec![one_of(&names)]);
        }
        let open = tokens.opening(at).filter(|open| tokens.is_mark(*open, 0, '('));
        let Some((open, name)) = open.and_then(|open| Some((open, tokens.word(open, -1)?))) else {
            return (self.statuses_of_calls(tokens, at), self.of_pattern(tokens, at));
        };
        let arguments = at + 4..tokens.end(at + 4, &[]);
        let is_sentence = arguments.clone().any(|at| tokens.is_word(at, 0, "sentence"));
        let mut texts = self.sources.texts(tokens, arguments);
        if texts.is_empty() {
            texts = self.of_pattern(tokens, at);
        }
        if is_sentence {
            texts = texts.iter().map(|text| capitalized(text)).collect();
        }
        if name == "choice" || (name == "refused" && tokens.is_mark(open, -2, '.')) {
            texts = texts.iter().map(|text| format!("{FIELD}{text}")).collect();
        }
        (self.status(tokens, open, at, name).into_iter().collect(), texts)
    }

    /// A call of `Place::malformed` at `at`.
    fn of_field(&self, tokens: &Tokens, at: usize) -> Option<(&'static str, Use)> {
        let is_call =
            tokens.is_word(at, 0, "malformed") && tokens.is_mark(at, -1, '.') && tokens.is_mark(at, 1, '(');
        if !is_call {
            return None;
        }
        let texts = self.sources.texts(tokens, at + 2..tokens.end(at + 2, &[]));
        let texts = texts.iter().map(|text| format!("{FIELD}{text}")).collect();
        Some((MALFORMED_FIELD, (self.constructors.get("malformed").copied().into_iter().collect(), texts)))
    }

    /// The status of an error that the function `name`, whose arguments begin at `open`, makes.
    fn status(&self, tokens: &Tokens, open: usize, at: usize, name: &str) -> Option<&'static str> {
        let is_given = |place: usize| tokens.is_word(place, 0, "status");
        let given = (open..at).find_map(|place| tokens.path(place, "StatusCode").and_then(number));
        let passed_on = (open..at).any(is_given).then_some("4xx");
        given.or(passed_on).or_else(|| self.constructors.get(name).copied())
    }

    /// Statuses where the function around `at` is called, which chooses a code.
    fn statuses_of_calls(&self, tokens: &Tokens, at: usize) -> Vec<&'static str> {
        let name = tokens.function(at).and_then(|function| tokens.word(function, 1)).unwrap_or_default();
        let of_call = |call: usize| {
            let open = tokens.opening(call)?;
            self.status(tokens, open, call, tokens.word(open, -1)?)
        };
        calls(tokens, name).filter_map(of_call).collect()
    }

    /// Texts of the error variant that the pattern of this arm names.
    fn of_pattern(&self, tokens: &Tokens, at: usize) -> Vec<String> {
        let Some(arrow) = (0..at).rev().find(|place| tokens.is_arrow(*place)) else { return Vec::new() };
        let patterns = (arrow.saturating_sub(PATTERN_TOKENS_MAX)..arrow).rev();
        let texts = patterns.filter_map(|place| {
            let enumeration = tokens.word(place, 0)?;
            let variant = tokens.path(place, enumeration)?;
            self.variants.get(&(enumeration.to_owned(), variant.to_owned()))
        });
        texts.take(1).flatten().cloned().collect()
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The text of the API for a body without any of its fields.
fn one_of(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [first, second] => format!("Send {first}, {second} or both"),
        [rest @ .., last] => format!("Send {} or {last}", rest.join(", ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str = "fn new(status: StatusCode, code: Code) {}\n\
        fn refused(code: Code) { Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message) }\n\
        fn malformed(code: Code) { Self::new(StatusCode::BAD_REQUEST, code, message) }\n";

    fn code(variant: &str) -> Declared {
        Declared { variant: variant.into(), name: "a".into(), ..Declared::default() }
    }

    fn uses_of(source: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let files = vec![Tokens::of(ERROR), Tokens::of(source)];
        let variants =
            BTreeMap::from([(("Fault".to_owned(), "Late".to_owned()), vec!["it is late".to_owned()])]);
        let mut found = uses(&[code("A")], &Sources::of(files), &variants)?;
        let uses = found.remove(0);
        Ok((uses.statuses.into_iter().map(str::to_owned).collect(), uses.texts))
    }

    #[test]
    fn a_declaration_has_group_names_cause_and_fix() {
        let source =
            "codes! {\n    // One.\n    A \"a_b\":\n        \"Why \\\"x\\\".\",\n        \"Do.\";\n}\n";
        let codes = declared(&source.replace("\\\"", "`"));
        assert_eq!(codes.len(), 1);
        let fields = [&codes[0].group, &codes[0].variant, &codes[0].name, &codes[0].cause, &codes[0].fix];
        assert_eq!(fields, ["One", "A", "a_b", "Why `x`.", "Do."]);
    }

    #[test]
    fn a_code_has_the_texts_of_all_its_uses() {
        let source = "const LONG: &str = \"one \\\n    two\";\nfn f() {\n    ApiError::refused(Code::A, LONG);\n\
            let text = format!(\"at {x:?}\");\nApiError::malformed(Code::A, text);\n}\n";
        let (statuses, texts) = uses_of(source).unwrap();
        assert_eq!((statuses.join(" "), texts.join("; ")), ("400 422".into(), "one two; at {x}".into()));
    }

    #[test]
    fn texts_of_closures_functions_places_and_patterns_are_found() {
        for (source, expected) in [
            (
                "fn f() { let no = |text: &str| ApiError::refused(Code::A, text); no(\"one\"); no(\"two\"); x::no(\"three\"); }",
                "one; two",
            ),
            ("fn no(text: &str) { ApiError::refused(Code::A, text) }\nfn f() { no(\"one\") }", "one"),
            ("fn f() { place.refused(Code::A, \"must be one\") }", "Field `{field}` must be one"),
            ("fn f() { choice(Code::A, \"must be one\") }", "Field `{field}` must be one"),
            ("fn f() { struct B: \"B\", one of [\"a\", \"b\"] or Code::A {} }", "Send `a`, `b` or both"),
            ("fn f() { match x { Fault::Late => ApiError::refused(Code::A, x.to_string()) } }", "it is late"),
            (
                "fn g() { ApiError::refused(f(x), y) }\nfn f() { match x { Fault::Late => Code::A, } }",
                "it is late",
            ),
        ] {
            assert_eq!(uses_of(source).unwrap().1.join("; "), expected, "{source}");
        }
    }

    #[test]
    fn an_unused_code_and_an_unknown_status_fail() {
        assert!(uses_of("fn f() {}").is_err());
        assert!(uses_of("fn f() { let x = Code::A; }").is_err());
        assert!(uses_of("fn f() { other(Code::A) }").is_err());
    }
}
