//! The documentation page: plain HTML rendered from the API document. It runs no script and loads nothing from other
//! origins; its content security policy enforces both.

use std::fmt::Write as _;
use std::sync::Arc;

use poem::Response;
use poem::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::document::{is_public, is_secured};

/// Allows only the style sheet of this service.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page's style sheet.
pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1rem }
section { border-top: 1px solid; margin-top: 2rem }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid }
.method { font-weight: 700 }
pre { overflow-x: auto; padding: .5rem; border: 1px solid }
.note { opacity: .8 }
";

pub(super) async fn respond(page: Arc<str>) -> poem::Result<Response> {
    let mut response = Response::from(page.to_string());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// Renders the page.
pub(super) fn page(document: &Value) -> String {
    let mut page = String::new();
    let title = escape(text(&document["info"]["title"]));
    let version = escape(text(&document["info"]["version"]));
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} API</title>\n\
         <link rel=\"stylesheet\" href=\"/docs/style.css\">\n<body>\n<h1>{title} API {version}</h1>\n<p>{}</p>\n\
         <p>Machine-readable: <a href=\"/openapi.json\">/openapi.json</a></p>\n",
        escape(text(&document["info"]["description"]))
    );
    schemes(&mut page, &document["components"]["securitySchemes"]);
    let mut operations = String::new();
    let _ = page.write_str("<nav><h2>Operations</h2>\n<ul>\n");
    for (path, methods) in entries(&document["paths"]) {
        for (method, operation) in entries(methods) {
            let id = escape(text(&operation["operationId"]));
            let (method, path) = (escape(&method.to_uppercase()), escape(path));
            let summary = escape(text(&operation["summary"]));
            let _ = writeln!(page, "<li><a href=\"#{id}\"><code>{method} {path}</code></a> {summary}</li>");
            render_operation(&mut operations, document, &id, &format!("{method} {path}"), operation);
        }
    }
    let _ = write!(page, "</ul></nav>\n<main>\n{operations}<h2>Shapes</h2>\n");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        render_schema(&mut page, name, schema);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn schemes(page: &mut String, schemes: &Value) {
    page.push_str("<h2>Keys</h2>\n<ul>\n");
    for (_, scheme) in entries(schemes) {
        let form = match (text(&scheme["in"]), text(&scheme["name"])) {
            ("header", name) => format!("header <code>{}: KEY</code>", escape(name)),
            ("cookie", name) => format!("cookie <code>{}</code>", escape(name)),
            ("query", name) => format!("query parameter <code>{}=KEY</code>", escape(name)),
            _ => "header <code>Authorization: Bearer KEY</code>".to_owned(),
        };
        let _ = writeln!(page, "<li>{form}. {}</li>", prose(text(&scheme["description"])));
    }
    page.push_str("</ul>\n");
}

fn render_operation(page: &mut String, document: &Value, id: &str, title: &str, operation: &Value) {
    let _ = write!(
        page,
        "<section id=\"{id}\">\n<h2><code>{title}</code></h2>\n<p><b>{}</b></p>\n<p>{}</p>\n",
        escape(text(&operation["summary"])),
        prose(text(&operation["description"]))
    );
    let key = match (is_secured(operation), is_public(operation)) {
        (true, true) => "Needs a public key.",
        (true, false) => "Needs a permanent key.",
        (false, _) => "Needs no key.",
    };
    let _ = writeln!(page, "<p class=\"note\">{key}</p>");
    if let Some(parameters) = operation["parameters"].as_array() {
        page.push_str("<table>\n<tr><th>Parameter</th><th>In</th><th>Meaning</th></tr>\n");
        for parameter in parameters {
            let _ = writeln!(
                page,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(text(&parameter["name"])),
                escape(text(&parameter["in"])),
                escape(text(&parameter["description"]))
            );
        }
        page.push_str("</table>\n");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = writeln!(page, "<p>Body: {}</p>", shape(body));
    }
    examples(page, "Body", &operation["requestBody"]["content"]["application/json"]);
    page.push_str("<table>\n<tr><th>Status</th><th>Meaning</th><th>Body</th></tr>\n");
    for (status, response) in entries(&operation["responses"]) {
        let response = resolve(document, response);
        let schema = &response["content"]["application/json"]["schema"];
        let description = escape(text(&response["description"]));
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{description}</td><td>{}</td></tr>",
            escape(status),
            shape(schema)
        );
    }
    page.push_str("</table>\n");
    examples(page, "Answer", &operation["responses"]["200"]["content"]["application/json"]);
    page.push_str("</section>\n");
}

/// Collapsed examples of a body.
fn examples(page: &mut String, title: &str, media: &Value) {
    let mut show = |title: &str, value: &Value| {
        let value = escape(&format!("{value:#}"));
        let title = escape(title);
        let _ = writeln!(page, "<details><summary>{title}</summary><pre>{value}</pre></details>");
    };
    if let Some(example) = media.get("example") {
        show(&format!("{title}, for example"), example);
    }
    for (_, example) in entries(&media["examples"]) {
        show(&format!("{title}, for example: {}", text(&example["summary"])), &example["value"]);
    }
}

fn render_schema(page: &mut String, name: &str, schema: &Value) {
    let name = escape(name);
    let _ = write!(
        page,
        "<section id=\"shape-{name}\">\n<h3><code>{name}</code></h3>\n<p>{}</p>\n",
        escape(text(&schema["description"]))
    );
    if schema.get("properties").is_some() {
        page.push_str("<table>\n<tr><th>Field</th><th>Type</th><th>Meaning</th></tr>\n");
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (field, property) in entries(&schema["properties"]) {
            let optional = if required.iter().any(|name| name == field) { "" } else { ", optional" };
            let meaning = escape(text(&property["description"]));
            let field = escape(field);
            let _ = writeln!(
                page,
                "<tr><td><code>{field}</code></td><td>{}{optional}</td><td>{meaning}</td></tr>",
                shape(property)
            );
        }
        page.push_str("</table>\n");
    } else {
        let _ = writeln!(page, "<p>{}</p>", shape(schema));
    }
    page.push_str("</section>\n");
}

/// A short description of a schema, with links to named schemas.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#shape-{name}\">{name}</a>");
    }
    let several = |schemas: &Vec<Value>, between: &str| {
        schemas.iter().map(shape).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(between)
    };
    let mut words = match (schema["oneOf"].as_array(), schema["allOf"].as_array(), schema["enum"].as_array())
    {
        (Some(schemas), _, _) => several(schemas, " or "),
        (_, Some(schemas), _) => several(schemas, " "),
        (_, _, Some(values)) => values
            .iter()
            .map(|value| format!("<code>{}</code>", escape(text(value))))
            .collect::<Vec<_>>()
            .join(", "),
        _ if schema["type"] == "array" => format!("list of {}", shape(&schema["items"])),
        _ => escape(text(&schema["type"])),
    };
    if schema["nullable"] == true && !words.is_empty() {
        words.push_str(" or null");
    }
    words
}

fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(value)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A description as HTML: text between backticks becomes `<code>`.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let shown = parts.map(|(number, part)| match number % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    shown.collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_names_every_operation_and_loads_only_its_style() {
        let document = crate::api::document::testing::bundled();
        let page = page(&document);
        for (path, _) in entries(&document["paths"]) {
            assert!(page.contains(path), "{path}");
        }
        assert_eq!(page.matches("href=\"/docs/style.css\"").count(), 1);
        // Texts and examples contain URLs, but never where a browser would load them by itself.
        for outside in ["<script", "src=", "<img", "<iframe", "href=\"http", "href=\"//", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.matches("<details>").count() > 30, "examples of every operation");
        assert!(page.contains("Sunday service"));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        let targets = page.match_indices("href=\"#").map(|(at, found)| {
            let rest = &page[at + found.len()..];
            &rest[..rest.find('"').unwrap()]
        });
        for target in targets {
            assert!(page.contains(&format!("id=\"{target}\"")), "broken link: {target}");
        }
    }

    #[test]
    fn the_cookie_scheme_is_named_and_backticks_become_code() {
        let page = page(&crate::api::document::testing::bundled());
        assert!(page.contains("<li>cookie <code>"), "the session's cookie");
        assert_eq!(prose("a `b<` c"), "a <code>b&lt;</code> c");
    }

    #[test]
    fn texts_of_the_document_are_escaped() {
        let document = json!({"info": {"title": "<script>\"&", "version": "1", "description": "<b>"}});
        let page = page(&document);
        assert!(page.contains("&lt;script&gt;&quot;&amp;") && !page.contains("<script>"));
    }
}
