//! Every operation of the document: for those who may call it, for those who may not, and with each error it declares.
//!
//! The document leads: an operation without a row in `rows.rs` fails, and so does a status that is declared and that nothing
//! here provokes. What a row says is how to make a success; what else can happen follows from the document.

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

/// Tests that share the operations among them: they run at the same time.
const SHARDS: usize = 4;
/// A fault of the service itself; what it looks like is tested with a handler that panics.
const INTERNAL: u16 = 500;

fn row_of(id: &str) -> &'static Row {
    ROWS.iter().find(|row| row.id == id).unwrap_or_else(|| {
        panic!("operation {id} has no row in host/web/src/api/tests/table/rows.rs; say there how it succeeds")
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
        assert!(known.contains(row.id), "the row of {} is about no operation", row.id);
    }
    assert_eq!(ROWS.len(), known.len(), "a row stands twice");
}

async fn every_declared_answer_is_given(shard: usize) {
    let broken = World::broken().await;
    let mut faults = Vec::new();
    for operation in operations().iter().skip(shard).step_by(SHARDS) {
        let row = row_of(operation.id);
        let world = World::new().await;
        world.succeeds(operation, row).await;
        world.refuses_wrong_credentials(operation, row).await;
        world.hides_what_belongs_to_others(operation, row).await;
        world.refuses_what_cannot_be_read(operation, row).await;
        world.keeps_its_limits(operation, row).await;
        world.shows_what_is_special(operation, row).await;
        let mut seen = world.seen();
        seen.extend(broken.fails(operation, row).await);
        let declared = operation.declared();
        let promised: Vec<_> = declared.difference(&seen).collect();
        if !promised.is_empty() {
            faults.push(format!("{} declares {promised:?}, which nothing gave", operation.id));
        }
        let unsaid: Vec<_> = seen.difference(&declared).collect();
        if !unsaid.is_empty() {
            faults.push(format!("{} gave {unsaid:?}, which it does not declare", operation.id));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn operations_give_every_answer_they_declare_and_no_other_first_part() {
    every_declared_answer_is_given(0).await;
}

#[tokio::test]
async fn operations_give_every_answer_they_declare_and_no_other_second_part() {
    every_declared_answer_is_given(1).await;
}

#[tokio::test]
async fn operations_give_every_answer_they_declare_and_no_other_third_part() {
    every_declared_answer_is_given(2).await;
}

#[tokio::test]
async fn operations_give_every_answer_they_declare_and_no_other_fourth_part() {
    every_declared_answer_is_given(SHARDS - 1).await;
}
