//! Unknown paths, and methods that a path does not support.

use std::collections::{BTreeMap, BTreeSet};

use poem::http::Method;

use super::operation::operations;
use super::world::{Call, Credential, World};

/// Paths that are no operations, with their methods.
const OTHERS: [&str; 3] = ["/openapi.json", "/healthz", "/readyz"];

fn call(method: &str, path: &str) -> Call {
    Call {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        path: path.to_owned(),
        query: String::new(),
        body: b"{".to_vec(),
        content_type: None,
        headers: Vec::new(),
        credential: Credential::Owner,
    }
}

/// The methods of every path, by its template.
fn methods() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut methods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for operation in operations() {
        let names = methods.entry(operation.template).or_default();
        names.insert(operation.method.to_string());
        if operation.reads() {
            names.insert("HEAD".to_owned());
        }
        if operation.is_public() {
            names.insert("OPTIONS".to_owned());
        }
    }
    methods.extend(OTHERS.map(|path| (path, BTreeSet::from(["GET", "HEAD"].map(str::to_owned)))));
    methods
}

#[tokio::test]
async fn wrong_methods_get_the_allowed_methods() {
    let world = World::new().await;
    for (template, taken) in methods() {
        let path = template.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        let allow = taken.iter().cloned().collect::<Vec<_>>().join(", ");
        let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PURGE"];
        for method in all.into_iter().filter(|method| !taken.contains(*method)) {
            let answer = world.send(call(method, &path)).await;
            assert_eq!(answer.status.as_u16(), 405, "{method} {template}: {}", answer.text);
            assert_eq!(answer.header("allow"), allow, "{method} {template}");
            if method != "HEAD" {
                answer.error(405, "method_not_allowed");
            }
        }
    }
}

#[tokio::test]
async fn unknown_paths_are_404_with_any_method() {
    let world = World::new().await;
    for (template, _) in methods() {
        let path = template.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        for wrong in
            [format!("{path}/no/such/resource"), format!("{path}/"), format!("/{path}"), path.to_uppercase()]
        {
            for method in ["GET", "POST", "DELETE"] {
                let answer = world.send(call(method, &wrong)).await;
                assert_eq!(answer.status.as_u16(), 404, "{method} {wrong}: {}", answer.text);
                answer.error(404, "not_found");
            }
        }
    }
}
