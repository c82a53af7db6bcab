//! The public operations allow 60 requests of one key within any 60 seconds.

use std::time::Duration;

use serde_json::json;

use super::operation::{Operation, operations};
use super::row_of;
use super::world::{Call, Credential, Resource, World};

const MOST: u64 = 60;

/// The 61st request is refused wherever the 60 seconds start; refused requests are not counted.
async fn the_sixty_first_is_refused(operation: &Operation) {
    let world = World::new().await;
    let ask = async || {
        world.send(Call::new(operation, row_of(operation.id), &Resource::nothing(), Credential::Public)).await
    };
    let pass = |secs| world.rig.app.clock.advance(Duration::from_secs(secs));
    // One each half minute of a second's beginning, so that the window moves through them.
    for second in 0..30 {
        assert_eq!(ask().await.status, 200, "{second}");
        assert_eq!(ask().await.status, 200, "{second}");
        pass(1);
    }
    let wait = MOST - 30;
    let refused = ask().await;
    let expected = json!({
        "error": refused.json()["error"],
        "code": "rate_limited",
        "requestId": refused.header("x-request-id"),
        "retryAfter": wait,
    });
    assert_eq!((refused.status.as_u16(), refused.json()), (429, expected), "{}", operation.id);
    assert_eq!(refused.header("retry-after"), wait.to_string());
    pass(wait - 1);
    for _ in 0..100 {
        assert_eq!(ask().await.json()["retryAfter"], 1, "refused requests do not extend the wait");
    }
    for second in 0..30 {
        pass(1);
        for _ in 0..2 {
            assert_eq!(ask().await.status, 200, "{second}: two requests have left the window");
        }
        assert_eq!(ask().await.status, 429, "{second}: a third request is refused");
    }
}

#[tokio::test]
async fn the_sixty_first_request_within_any_minute_is_refused() {
    let mut count = 0;
    for operation in operations().iter().filter(|operation| operation.is_public() && operation.is_secured()) {
        count += 1;
        the_sixty_first_is_refused(operation).await;
    }
    assert_eq!(count, 2, "status and cost");
}
