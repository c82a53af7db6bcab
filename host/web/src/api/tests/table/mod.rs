//! Tests every operation of the document: with allowed and refused credentials, and with each declared error.
//!
//! The document decides: an operation without a row in `rows.rs` fails, and so does a declared status that no test provokes. A row
//! describes a successful request; the errors follow from the document.

mod bodies;
mod operation;
mod paths;
mod provoke;
mod rows;
mod special;
mod window;
mod world;

use std::collections::BTreeSet;

use self::operation::operations;
use self::rows::{ROWS, Row};
use self::world::World;

/// Number of tests that share the operations and run in parallel.
const SHARDS: usize = 4;
/// Internal errors are not provoked here; a handler that panics tests them.
const INTERNAL: u16 = 500;

fn row_of(id: &str) -> &'static Row {
    ROWS.iter().find(|row| row.id == id).unwrap_or_else(|| {
        panic!("operation {id} has no row in host/web/src/api/tests/table/rows.rs; add a row with a successful request")
    })
}

#[test]
fn every_operation_has_one_row_and_every_row_an_operation() {
    let operations = operations();
    assert!(operations.len() >= 40, "{} operations", operations.len());
    for operation in &operations {
        row_of(operation.id);
    }
    let known: BTreeSet<_> = operations.iter().map(|operation| operation.id).collect();
    for row in ROWS {
        assert!(known.contains(row.id), "the row of {} has no operation", row.id);
    }
    assert_eq!(ROWS.len(), known.len(), "a row is duplicated");
}

async fn check_declared_statuses(shard: usize) {
    let broken = World::broken().await;
    let mut faults = Vec::new();
    for operation in operations().iter().skip(shard).step_by(SHARDS) {
        let row = row_of(operation.id);
        let world = World::new().await;
        world.succeeds(operation, row).await;
        world.refuses_wrong_credentials(operation, row).await;
        world.hides_resources_of_other_accounts(operation, row).await;
        world.refuses_unreadable_requests(operation, row).await;
        world.keeps_its_limits(operation, row).await;
        world.check_special_cases(operation, row).await;
        let mut seen = world.seen();
        seen.extend(broken.fails(operation, row).await);
        let declared = operation.declared();
        let promised: Vec<_> = declared.difference(&seen).collect();
        if !promised.is_empty() {
            faults.push(format!("{} declares {promised:?}, which no test provoked", operation.id));
        }
        let unsaid: Vec<_> = seen.difference(&declared).collect();
        if !unsaid.is_empty() {
            faults.push(format!("{} returned {unsaid:?}, which it does not declare", operation.id));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn operations_return_exactly_the_declared_statuses_part_1() {
    check_declared_statuses(0).await;
}

#[tokio::test]
async fn operations_return_exactly_the_declared_statuses_part_2() {
    check_declared_statuses(1).await;
}

#[tokio::test]
async fn operations_return_exactly_the_declared_statuses_part_3() {
    check_declared_statuses(2).await;
}

#[tokio::test]
async fn operations_return_exactly_the_declared_statuses_part_4() {
    check_declared_statuses(SHARDS - 1).await;
}
