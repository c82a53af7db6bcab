//! What may be asked of the driver contract by drivers that are broken, old, careless or hostile, and the test that holds each answer.
//! A healthy stream beside them loses nothing in those that run the service. One line for each case; the names are checked. Isolation is no
//! defence against a library that means harm: the cases that are not here for that reason stand in docs/decisions/0015-isolation-is-no-sandbox.md.
//!
//! # Load
//! - no library, an empty one, half of one, one for another processor, a folder, a pipe, none at all:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `files_that_are_not_drivers_have_clear_errors`
//! - no symbol, an undefined symbol, a constructor that aborts, hangs or ends the process as if all were well:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `each_content_is_probed_once_and_a_crashed_one_never_again`
//! - bad magic, another major version, a short table, a missing function, no table, an id in broken UTF-8:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `each_wrong_table_gets_its_own_message`
//! - a longer and a newer table: `longer_and_newer_tables_are_read`; an older one: `older_tables_without_the_last_field_are_read`,
//!   `drivers_of_earlier_versions_get_every_packet`, `drivers_of_earlier_versions_get_every_packet_in_processes`,
//!   `missing_fields_of_an_older_hosts_request_are_empty`
//! - a bad manifest, a schema of 10 MiB, a schema that is none, a reference to elsewhere, a pattern that looks around or swells:
//!   `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `every_limit_refuses`
//! - a pattern that takes for ever elsewhere: `a_pattern_that_takes_for_ever_elsewhere_is_judged_at_once`
//! - panics that abort, on threads of the service: `files_that_are_no_drivers_are_refused_and_named`
//! - another id than the file's name, a type that another driver serves, `init` that fails or hangs, a wrong hash, a file that all may
//!   write to: `files_that_are_no_drivers_are_refused_and_named`, `in_a_process_of_their_own_they_are_refused_as_well`,
//!   `writable_files_are_refused_and_copies_are_private`,
//!   `only_root_and_the_service_user_may_own_a_library`, `a_folder_that_everyone_can_write_to_is_refused`
//! - a file that is overwritten or replaced while it runs: `operators_change_drivers_while_streams_continue`,
//!   `a_refused_change_is_shown_until_the_driver_is_current`
//! - another compiler: `a_driver_of_another_rust_compiler_carries_a_stream`; C by gcc and clang:
//!   `a_new_driver_in_c_builds_passes_its_test_and_carries_a_stream`
//!
//! # Life
//! - a panic in `types`, `load` or the driver's end: `panics_in_load_refuse_the_driver_and_panics_at_the_end_are_contained`,
//!   `a_driver_that_panics_at_its_start_is_refused_and_one_at_its_end_has_ended`
//! - a panic in `validate`, `open`, `run`, or of what `run` left: `a_drivers_life`,
//!   `a_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`, `in_a_process_of_its_own_it_is_the_same`; in `reconfigure`:
//!   `host_actions_beside_media`; in questions about recordings: `recordings_over_the_table`
//! - a panic in a panic: `a_panic_in_a_panic_ends_the_child_and_nothing_else` (on threads of the service it is the end of the service)
//! - a hang in `init`: `files_that_are_no_drivers_are_refused_and_named`; in `validate`: `a_driver_that_hangs_gets_no_calls_until_it_returns`,
//!   `a_child_that_does_not_return_or_live_is_replaced`; in `open`, `stop`, `destroy` and `deinit`:
//!   `a_destination_that_does_not_open_is_left_alone_and_says_why`, `a_hanging_opening_alone_in_the_process_is_reported_as_a_hang`,
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `attacks_on_threads_of_the_host_harm_no_other_stream`
//! - a waker that blocks, a stop that is ignored, `stopped` said twice, never, early or from another thread, calls after it and after
//!   `destroy`, `destroy` while it runs: `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`,
//!   `attacks_on_threads_of_the_host_harm_no_other_stream`, `a_table_that_breaks_the_rules_harms_only_itself`
//! - opened and ended a thousand times without a thread, a descriptor or memory more: `a_thousand_openings_leak_nothing`,
//!   `soak_opened_and_ended_again_and_again_nothing_stays`, `soak_opened_and_ended_again_and_again_in_a_process_nothing_stays`
//! - loaded, opened, killed or disabled, and replaced again and again: `soak_killed_and_replaced_again_and_again_nothing_stays`,
//!   `soak_disabled_and_replaced_again_and_again_nothing_stays`
//!
//! # Media
//! - never reads, leaks all: `a_driver_that_floods_leaks_or_never_reads_harms_only_itself`, `on_threads_of_the_service_as_well`,
//!   `only_a_stalled_destination_loses_packets_and_it_does_not_delay_the_end`
//! - one packet a second, packets kept beyond the end, released twice (which a debug build survives and tells), never given back:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `attacks_on_threads_of_the_host_harm_no_other_stream`,
//!   `a_table_that_breaks_the_rules_harms_only_itself`
//! - configurations and the mark of a gap after a loss: `overflow_drops_to_the_newest_queued_keyframe_and_repeats_the_configuration`,
//!   `host_actions_beside_media`
//! - a stall, a full or hanging disk, a full spool where nothing may be lost: `a_stall_of_a_minute_loses_no_packets_with_a_disk`,
//!   `a_full_disk_loses_no_packets_before_memory_is_full_and_is_retried`, `a_disk_that_hangs_does_not_block_the_queue`,
//!   `a_full_spool_drops_up_to_a_keyframe_and_keeps_waiting_packets`, `a_lossless_driver_gets_delayed_packets_later`
//! - a hundred destinations of which one is slow: `a_slow_one_of_a_hundred_loses_alone`, `a_slow_one_of_a_hundred_in_a_process_loses_alone`
//! - every order of publisher, driver and release: `host/model`, which `cargo xtask test` runs
//!
//! # Services
//! - floods of lines and events, a line of 1 MiB, a thousand counters: `a_driver_that_floods_leaks_or_never_reads_harms_only_itself`,
//!   `on_threads_of_the_service_as_well`, `lines_of_a_window_are_limited_and_those_left_out_are_counted`,
//!   `events_are_limited`, `counters_are_shared_and_limited`,
//!   `log_lines_of_a_driver_are_limited_over_all_destinations`, `counter_names_are_valid_and_limited`
//! - more bytes than can be: `implausible_byte_counts_are_capped_and_reported_once`
//! - panics on purpose, to take the driver from others: `a_failing_account_quarantines_only_itself`,
//!   `panics_of_one_account_set_aside_only_that_account`,
//!   `accounts_held_at_different_times_do_not_quarantine_the_driver`; a panic that only a return code tells:
//!   `a_table_that_breaks_the_rules_harms_only_itself`
//! - texts that are none, records that are too short, numbers that mean nothing:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `attacks_on_threads_of_the_host_harm_no_other_stream`
//! - a secret in a line, an error or a panic: `a_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`,
//!   `in_a_process_of_its_own_it_is_the_same`, `lines_without_a_destination_are_cleaned_of_all_secrets`
//! - an asset outside its folder, an empty one, or one released twice: `a_drivers_life`, `releasing_an_asset_may_call_back`
//! - a viewer's request answered twice, never, with a bad file, a range past its end or lines in a header:
//!   `viewers_get_answers_from_memory_files_and_parts_and_errors_are_contained`, `only_regular_files_with_enough_bytes_are_sent`,
//!   `an_answer_is_accepted_once_and_only_for_a_waiting_viewer`, `waiting_requests_are_limited`, `a_driver_on_threads_answers_viewers`,
//!   `a_driver_in_a_process_answers_viewers_and_dies_alone`
//! - an answer that is never given or given twice: `an_answer_is_sent_exactly_once`
//!
//! # Process
//! - fault, abort, exit, a full stack: `a_fault_or_an_abort_ends_the_child_and_nothing_else`,
//!   `an_exit_or_a_full_stack_ends_the_child_and_nothing_else`; over its memory: `a_child_over_its_memory_dies_alone`,
//!   `a_group_limits_memory_and_reports_its_kills`; a request that is not taken:
//!   `a_child_that_does_not_return_from_a_call_is_ended`; stopped by a signal:
//!   `a_child_that_does_not_return_or_live_is_replaced`
//! - an exception of C++ over the boundary, a child of its own that stays:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it` (on threads of the service an exception is the end of the service)
//! - a host that is killed leaves nobody: `no_child_outlives_its_host`
//! - waits between restarts, and an end of them: `waits_grow_to_a_limit`, `several_failing_accounts_quarantine_the_driver`
//! - crashes on purpose, to take the driver from others: `an_account_that_crashes_a_driver_repeatedly_is_quarantined_and_others_continue`,
//!   `a_failing_account_quarantines_only_itself`, `an_account_with_a_call_is_inside_and_gets_the_end`,
//!   `a_single_account_inside_is_found_at_once_and_an_empty_process_finds_no_account`,
//!   `one_of_a_hundred_is_found_in_a_few_crashes_and_again_at_once`,
//!   `innocent_accounts_are_never_found`, `waiting_accounts_get_their_wait`,
//!   `head_starts_grow_to_a_limit_and_are_short_again_for_a_new_search`
//! - crashes and tries meanwhile do not slow down a healthy destination:
//!   `an_account_that_crashes_a_driver_repeatedly_is_quarantined_and_others_continue`,
//!   `attempts_during_a_quarantine_do_not_count_for_the_destination`
//!
//! # Also
//! - the layout of every struct: `structs_of_earlier_versions_grow_only_at_their_ends`, `the_layout_is_the_committed_one`,
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
