//! Pages of lists.

use serde_json::{Value, json};

use super::Rig;

fn ids(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|entry| entry["id"].as_i64().unwrap()).collect()
}

/// Follows the `Link` headers from `path` on.
async fn follow(rig: &Rig, path: &str) -> Vec<Vec<i64>> {
    let (mut pages, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next.take() {
        assert!(pages.len() < 10, "the pages end");
        let answer = rig.get(&path).await;
        pages.push(ids(&answer.ok()));
        let link = answer.header("link");
        next = link.strip_prefix("<http://127.0.0.1:8080").map(|rest| {
            let (path, relation) = rest.split_once('>').unwrap();
            assert_eq!(relation, "; rel=\"next\"");
            path.to_owned()
        });
    }
    pages
}

#[tokio::test]
async fn pages_run_from_the_newest_to_the_oldest_without_gaps() {
    let rig = Rig::new().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.insert(0, rig.stream().await);
    }
    let expected: Vec<Vec<i64>> = made.chunks(2).map(<[i64]>::to_vec).collect();
    assert_eq!(follow(&rig, "/api/streams?limit=2").await, expected);
    assert_eq!(follow(&rig, "/api/streams?limit=5").await, [made.clone()]);
    assert_eq!(follow(&rig, "/api/streams").await, [made]);
}

#[tokio::test]
async fn destinations_have_pages_too() {
    let rig = Rig::new().await;
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}});
    for _ in 0..3 {
        rig.post(&path, &target).await.ok();
    }
    let pages = follow(&rig, &format!("{path}?limit=2")).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn drivers_are_listed_with_their_types_and_refused_ones_to_operators() {
    let mut rig = Rig::new().await;
    let list = rig.get("/api/drivers").await.ok();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!((&list[0]["state"], &list[0]["error"]), (&json!("loaded"), &Value::Null));
    assert_eq!((&list[0]["version"], &list[0]["file"]), (&json!("1.0.0"), &Value::Null), "it is linked in");
    let hosted =
        list[0]["types"].as_array().unwrap().iter().find(|kind| kind["name"] == "self-hosted").unwrap();
    assert_eq!(hosted["playback"], true);
    assert_eq!(hosted["configSchema"]["type"], "object");
    rig.key = rig.operator().await;
    let list = rig.get("/api/drivers").await.ok();
    assert_eq!((&list[1]["state"], &list[1]["types"]), (&json!("refused"), &json!([])));
    assert_eq!(list[1]["error"], satcast_drivers::REFUSED);
}
