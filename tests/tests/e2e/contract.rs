//! What may be asked of the driver contract by drivers that are broken, old, careless or hostile, and the test that holds each answer.
//! A healthy stream beside them loses nothing in those that run the service. One line for each case; the names are checked. Isolation is no
//! defence against a library that means harm: the cases that are not here for that reason stand in docs/decisions/0015-isolation-is-no-sandbox.md.
//!
//! # Load
//! - no library, an empty one, half of one, one for another processor, a folder, a pipe, none at all:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `files_that_are_no_drivers_say_why`
//! - no symbol, an undefined symbol, a constructor that aborts, hangs or ends the process as if all were well:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `each_content_is_looked_at_once_and_one_that_crashed_not_again`
//! - bad magic, another major version, a short table, a missing function, no table, an id in broken UTF-8:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `every_wrong_table_has_its_own_refusal`
//! - a longer and a newer table: `longer_and_newer_tables_are_read`; an older one: `older_tables_without_the_last_field_are_read`,
//!   `drivers_of_past_versions_get_every_packet`, `drivers_of_past_versions_get_every_packet_in_processes`,
//!   `the_request_of_an_older_host_is_read_without_what_it_lacks`
//! - a bad manifest, a schema of 10 MiB, a schema that is none, a reference to elsewhere, a pattern that looks around or swells:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `every_limit_refuses`
//! - a pattern that takes for ever elsewhere: `a_pattern_that_takes_for_ever_elsewhere_is_judged_at_once`
//! - panics that abort, on threads of the service: `files_that_are_no_drivers_are_refused_and_named`
//! - another id than the file's name, a type that another driver serves, `init` that fails or hangs, a wrong hash, a file that all may
//!   write to: `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `writable_files_are_refused_and_copies_are_private`,
//!   `only_root_and_who_runs_the_service_may_own_a_library`, `a_folder_that_everyone_can_write_to_is_refused_for_what_it_is`
//! - a file that is overwritten or replaced while it runs: `operators_change_drivers_and_what_runs_goes_on`,
//!   `a_driver_whose_change_was_refused_says_so_until_it_is_what_it_should_be`
//! - another compiler: `a_driver_of_another_rust_compiler_carries_a_stream`; C by gcc and clang:
//!   `a_new_driver_in_c_builds_passes_its_test_and_carries_a_stream`
//!
//! # Life
//! - a panic in `types`, `load` or the driver's end: `a_driver_that_panics_is_refused_at_its_start_and_survived_at_its_end`,
//!   `a_driver_that_panics_at_its_start_is_refused_and_one_at_its_end_has_ended`
//! - a panic in `validate`, `open`, `run`, or of what `run` left: `a_drivers_life`,
//!   `a_driver_that_panics_harms_only_its_destination_and_tells_no_secret`, `in_a_process_of_its_own_it_is_the_same`; in `reconfigure`:
//!   `everything_else_a_host_does`; in questions about recordings: `recordings_over_the_table`
//! - a panic in a panic: `a_panic_in_a_panic_ends_the_child_and_nothing_else` (on threads of the service it is the end of the service)
//! - a hang in `init`: `files_that_are_no_drivers_are_refused_and_named`; in `validate`: `a_driver_that_hangs_is_left_alone_until_it_returns`,
//!   `a_child_that_does_not_return_or_live_is_replaced`; in `open`, `stop`, `destroy` and `deinit`:
//!   `a_destination_that_does_not_open_is_left_alone_and_says_why`, `whose_destination_does_not_open_is_told_that_it_hung`,
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `what_a_host_survives_on_its_own_threads_harms_no_stream_either`
//! - a waker that blocks, a stop that is ignored, `stopped` said twice, never, early or from another thread, calls after it and after
//!   `destroy`, `destroy` while it runs: `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`,
//!   `what_a_host_survives_on_its_own_threads_harms_no_stream_either`, `a_table_that_breaks_the_rules_harms_itself`
//! - opened and ended a thousand times without a thread, a descriptor or memory more: `opened_and_ended_a_thousand_times_nothing_stays`,
//!   `soak_opened_and_ended_again_and_again_nothing_stays`, `soak_opened_and_ended_again_and_again_in_a_process_nothing_stays`
//! - loaded, opened, killed or disabled, and replaced again and again: `soak_killed_and_replaced_again_and_again_nothing_stays`,
//!   `soak_disabled_and_replaced_again_and_again_nothing_stays`
//!
//! # Media
//! - never reads, leaks all: `what_floods_leaks_or_never_reads_hurts_itself_alone`, `on_threads_of_the_service_as_well`,
//!   `a_deaf_destination_loses_packets_alone_and_does_not_hold_up_the_end`
//! - one packet a second, packets kept beyond the end, released twice (which a debug build survives and tells), never given back:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `what_a_host_survives_on_its_own_threads_harms_no_stream_either`,
//!   `a_table_that_breaks_the_rules_harms_itself`
//! - configurations and the mark of a gap after a loss: `overflow_drops_to_the_newest_queued_keyframe_and_repeats_the_configuration`,
//!   `everything_else_a_host_does`
//! - a stall, a full or hanging disk, a full spool where nothing may be lost: `a_stall_of_a_minute_loses_nothing_where_nothing_may_be_lost`,
//!   `a_full_disk_loses_nothing_before_memory_is_full_too_and_is_asked_again`, `a_disk_that_hangs_holds_up_nobody`,
//!   `a_spool_that_is_full_loses_up_to_a_keyframe_and_keeps_what_waits`, `what_a_lossless_driver_does_not_take_for_a_while_it_gets_later`
//! - a hundred destinations of which one is slow: `a_slow_one_of_a_hundred_loses_alone`, `a_slow_one_of_a_hundred_in_a_process_loses_alone`
//! - every order of publisher, driver and release: `host/model`, which `cargo xtask test` runs
//!
//! # Services
//! - floods of lines and events, a line of 1 MiB, a thousand counters: `what_floods_leaks_or_never_reads_hurts_itself_alone`,
//!   `on_threads_of_the_service_as_well`, `lines_of_a_window_are_limited_and_those_left_out_are_counted`,
//!   `a_flood_of_events_is_cut`, `counters_are_shared_and_limited`,
//!   `a_driver_says_so_much_through_all_its_destinations_and_no_more`, `counters_have_plain_names_and_few_in_all`
//! - more bytes than can be: `no_more_bytes_are_believed_than_can_be_sent_and_that_is_said_once`
//! - panics on purpose, to take the driver from others: `an_account_takes_a_driver_from_itself_alone`,
//!   `panics_of_one_account_take_the_driver_from_nobody_else`,
//!   `accounts_that_are_held_at_other_times_take_it_from_nobody`; a panic that only a return code tells:
//!   `a_table_that_breaks_the_rules_harms_itself`
//! - texts that are none, records that are too short, numbers that mean nothing:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `what_a_host_survives_on_its_own_threads_harms_no_stream_either`
//! - a secret in a line, an error or a panic: `a_driver_that_panics_harms_only_its_destination_and_tells_no_secret`,
//!   `in_a_process_of_its_own_it_is_the_same`, `lines_without_a_destination_lose_the_secrets_of_all`
//! - a piece outside its folder, of nothing, or given back once: `a_drivers_life`, `releasing_an_asset_may_call_back`
//! - a viewer's request answered twice, never, with a bad file, a range past its end or lines in a header:
//!   `a_driver_answers_viewers_from_memory_files_and_pieces_and_nothing_breaks_out`, `only_regular_files_with_those_bytes_are_sent`,
//!   `an_answer_is_taken_once_and_by_who_waits`, `so_many_wait_and_no_more`, `a_driver_on_threads_answers_viewers`,
//!   `a_driver_in_a_process_answers_viewers_and_dies_alone`
//! - an answer that is never given or given twice: `an_answer_is_given_once_wherever_it_goes`
//!
//! # Process
//! - fault, abort, exit, a full stack: `a_fault_or_an_abort_ends_the_child_and_nothing_else`,
//!   `an_exit_or_a_full_stack_ends_the_child_and_nothing_else`; over its memory: `a_child_over_its_memory_dies_alone`,
//!   `a_group_says_what_it_bounds_and_what_became_of_it`; a request that is not taken:
//!   `a_child_that_does_not_return_from_a_call_is_ended`; stopped by a signal:
//!   `a_child_that_does_not_return_or_live_is_replaced`
//! - an exception of C++ over the boundary, a child of its own that stays:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it` (on threads of the service an exception is the end of the service)
//! - a host that is killed leaves nobody: `no_child_outlives_its_host`
//! - waits between restarts, and an end of them: `waits_grow_to_an_end`, `several_accounts_that_fail_too_often_and_nobody_gets_anything_new`
//! - crashes on purpose, to take the driver from others: `who_crashes_a_driver_again_and_again_is_left_alone_and_the_others_go_on`,
//!   `an_account_takes_a_driver_from_itself_alone`, `who_has_a_call_in_progress_is_inside_and_hears_of_the_end`,
//!   `the_only_one_inside_is_found_at_once_and_nobody_where_nobody_is`,
//!   `one_of_a_hundred_is_found_in_a_few_crashes_and_found_again_at_once`,
//!   `no_account_is_found_that_crashes_nothing_whoever_else_does`, `who_waits_is_told_how_long`,
//!   `turns_grow_to_an_end_while_nobody_is_found_and_are_short_again_for_another_search`
//! - crashes and tries meanwhile do not slow down a healthy destination:
//!   `who_crashes_a_driver_again_and_again_is_left_alone_and_the_others_go_on`,
//!   `tries_while_the_driver_does_nothing_for_the_account_count_for_no_destination`
//!
//! # Also
//! - the layout of every struct: `structs_of_past_versions_have_grown_at_their_ends_alone`, `the_layout_is_the_committed_one`,
//!   `c_and_cpp_compilers_see_the_same`
//! - no symbol but the entry, and none of the service's libraries:
//!   `libraries_export_their_entry_and_the_service_nothing_of_its_libraries`
//! - sanitizers and an interpreter on the boundary's own code: `cargo xtask soak`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use satcast_tests::author::root;

/// Names that stand between backticks and are no tests.
const OTHERS: [&str; 11] = [
    "types",
    "load",
    "validate",
    "open",
    "run",
    "reconfigure",
    "init",
    "stop",
    "destroy",
    "deinit",
    "stopped",
];

#[test]
fn every_case_names_tests_that_exist() {
    let tests = tests();
    let documented: String =
        include_str!("contract.rs").lines().map_while(|line| line.strip_prefix("//!")).collect();
    let named: Vec<&str> =
        documented.split('`').skip(1).step_by(2).filter(|name| !name.contains([' ', '/'])).collect();
    let missing: Vec<&&str> =
        named.iter().filter(|name| !OTHERS.contains(name) && !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
    assert!(named.len() > 80, "{} names", named.len());
    for case in documented.split(" - ").skip(1) {
        assert!(case.contains('`'), "no test: {case}");
    }
}

/// Names of all tests of the workspace.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["plugin-api", "host", "tests/tests"] {
        collect(&root().join(folder), &mut files);
    }
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                names.extend(rest.split('(').next().map(str::to_owned));
                is_test = false;
            }
        }
    }
    names
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}
