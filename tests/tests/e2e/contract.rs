//! Cases of broken, old, careless and hostile drivers, and the tests that cover them: one line for each case, and the names of the tests
//! are checked. In tests with the service, a healthy stream beside the driver loses nothing. Isolation is no defence against a malicious
//! library: docs/decisions/0015-isolation-is-no-sandbox.md lists the cases that are left out for that reason.
//!
//! # Load
//! - a file that is not a library, an empty file, half a library, one for another processor, a folder, a pipe, no file:
//!   `files_that_are_not_drivers_are_refused_and_named`, `files_that_are_not_drivers_are_refused_in_processes_too`,
//!   `files_that_are_not_drivers_have_clear_errors`
//! - no symbol, an undefined symbol, a constructor that aborts, hangs or ends the process with success:
//!   `files_that_are_not_drivers_are_refused_and_named`, `files_that_are_not_drivers_are_refused_in_processes_too`,
//!   `each_content_is_probed_once_and_a_crashed_one_never_again`
//! - bad magic, another major version, a short table, a missing function, no table, an id in broken UTF-8:
//!   `files_that_are_not_drivers_are_refused_and_named`, `files_that_are_not_drivers_are_refused_in_processes_too`,
//!   `each_wrong_table_gets_its_own_message`
//! - a longer and a newer table: `longer_and_newer_tables_are_read`; an older one: `older_tables_without_the_last_field_are_read`,
//!   `drivers_of_earlier_versions_get_every_packet`, `drivers_of_earlier_versions_get_every_packet_in_processes`,
//!   `missing_fields_of_an_older_hosts_request_are_empty`
//! - a bad manifest, a schema of 10 MiB, an invalid schema, an external reference, a pattern with look-around or of excessive size:
//!   `files_that_are_not_drivers_are_refused_and_named`, `files_that_are_not_drivers_are_refused_in_processes_too`,
//!   `every_limit_refuses`
//! - a pattern that would take endless time with backtracking: `a_pattern_that_needs_endless_backtracking_is_matched_at_once`
//! - panics that abort, on threads of the service: `files_that_are_not_drivers_are_refused_and_named`
//! - an id that differs from the file's name, a type that another driver serves, `init` that fails or hangs, a wrong hash, a file that
//!   all users may write to: `files_that_are_not_drivers_are_refused_and_named`, `files_that_are_not_drivers_are_refused_in_processes_too`,
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
//! - a panic in `validate`, `open`, `run`, or after `run`: `a_drivers_life`,
//!   `a_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`,
//!   `an_isolated_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`; in `reconfigure`: `host_actions_beside_media`; in
//!   questions about recordings: `recordings_over_the_table`
//! - a panic in a panic: `a_panic_in_a_panic_ends_the_child_and_nothing_else` (on threads of the service it is the end of the service)
//! - a hang in `init`: `files_that_are_not_drivers_are_refused_and_named`; in `validate`:
//!   `a_driver_that_hangs_gets_no_calls_until_it_returns`, `a_child_that_does_not_return_or_live_is_replaced`; in `open`, `stop`, `destroy`
//!   and `deinit`: `a_destination_that_does_not_open_is_set_aside_with_the_reason`,
//!   `a_hanging_opening_alone_in_the_process_is_reported_as_a_hang`, `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`,
//!   `attacks_on_threads_of_the_host_harm_no_other_stream`
//! - a waker that blocks, a stop that is ignored, `stopped` said twice, never, early or from another thread, calls after it and after
//!   `destroy`, `destroy` while it runs: `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`,
//!   `attacks_on_threads_of_the_host_harm_no_other_stream`, `a_table_that_breaks_the_rules_harms_only_itself`
//! - a thousand openings without a leak of threads, descriptors or memory: `a_thousand_openings_leak_nothing`,
//!   `soak_repeated_openings_leak_nothing`, `soak_repeated_openings_in_a_process_leak_nothing`
//! - repeated cycles of loading, opening, killing or disabling, and replacing: `soak_repeated_kills_and_replacements_leak_nothing`,
//!   `soak_repeated_disabling_and_replacement_leaks_nothing`
//!
//! # Media
//! - a driver that never reads, or leaks all packets: `a_driver_that_floods_leaks_or_never_reads_harms_only_itself`,
//!   `a_driver_on_threads_that_floods_leaks_or_never_reads_harms_only_itself`,
//!   `only_a_stalled_destination_loses_packets_and_it_does_not_delay_the_end`
//! - one packet a second, packets kept after the end, released twice (which a debug build survives and reports), or never released:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `attacks_on_threads_of_the_host_harm_no_other_stream`,
//!   `a_table_that_breaks_the_rules_harms_only_itself`
//! - codec configurations and the mark of a gap after a loss: `overflow_drops_to_the_newest_queued_keyframe_and_repeats_the_configuration`,
//!   `host_actions_beside_media`
//! - a stall, a full or hanging disk, a full spool of a lossless driver: `a_stall_of_a_minute_loses_no_packets_with_a_disk`,
//!   `a_full_disk_loses_no_packets_before_memory_is_full_and_is_retried`, `a_disk_that_hangs_does_not_block_the_queue`,
//!   `a_full_spool_drops_up_to_a_keyframe_and_keeps_waiting_packets`, `a_lossless_driver_gets_delayed_packets_later`
//! - a hundred destinations of which one is slow: `one_slow_destination_of_a_hundred_loses_packets_alone`,
//!   `one_slow_destination_of_a_hundred_in_a_process_loses_packets_alone`
//! - every order of publisher, driver and release: `host/model`, which `cargo xtask test` runs
//!
//! # Services
//! - floods of lines and events, a line of 1 MiB, a thousand counters: `a_driver_that_floods_leaks_or_never_reads_harms_only_itself`,
//!   `a_driver_on_threads_that_floods_leaks_or_never_reads_harms_only_itself`,
//!   `lines_of_a_window_are_limited_and_those_left_out_are_counted`, `events_are_limited`, `counters_are_shared_and_limited`,
//!   `log_lines_of_a_driver_are_limited_over_all_destinations`, `counter_names_are_valid_and_limited`
//! - implausible byte counts: `implausible_byte_counts_are_capped_and_reported_once`
//! - panics on purpose, to make the driver unavailable for other accounts: `a_failing_account_quarantines_only_itself`,
//!   `panics_of_one_account_set_aside_only_that_account`,
//!   `accounts_held_at_different_times_do_not_quarantine_the_driver`; a panic that only a return code reports:
//!   `a_table_that_breaks_the_rules_harms_only_itself`
//! - invalid texts, records that are too short, numbers without a meaning:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it`, `attacks_on_threads_of_the_host_harm_no_other_stream`
//! - a secret in a line, an error or a panic: `a_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`,
//!   `an_isolated_driver_that_panics_harms_only_its_destination_and_reveals_no_secret`,
//!   `lines_without_a_destination_are_cleaned_of_all_secrets`
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
//!   `a_group_limits_memory_and_reports_its_kills`; a request that the process does not read:
//!   `a_child_that_does_not_return_from_a_call_is_ended`; stopped by a signal:
//!   `a_child_that_does_not_return_or_live_is_replaced`
//! - an exception of C++ over the boundary, a child of its own that stays:
//!   `no_attack_of_a_child_reaches_the_host_or_the_stream_beside_it` (on threads of the service an exception is the end of the service)
//! - a host that is killed leaves no process: `no_child_outlives_its_host`
//! - waits between restarts, and the limit of restarts: `waits_grow_to_a_limit`, `several_failing_accounts_quarantine_the_driver`
//! - crashes on purpose, to make the driver unavailable for other accounts:
//!   `an_account_that_crashes_a_driver_repeatedly_is_quarantined_and_others_continue`, `a_failing_account_quarantines_only_itself`,
//!   `an_account_with_a_call_is_inside_and_gets_the_end`, `a_single_account_inside_is_found_at_once_and_an_empty_process_finds_no_account`,
//!   `one_of_a_hundred_is_found_in_a_few_crashes_and_again_at_once`, `innocent_accounts_are_never_found`,
//!   `waiting_accounts_get_their_wait`, `head_starts_grow_to_a_limit_and_are_short_again_for_a_new_search`
//! - crashes and attempts meanwhile do not slow down a healthy destination:
//!   `an_account_that_crashes_a_driver_repeatedly_is_quarantined_and_others_continue`,
//!   `attempts_during_a_quarantine_do_not_count_for_the_destination`
//!
//! # Also
//! - the layout of every struct: `structs_of_earlier_versions_grow_only_at_their_ends`, `the_layout_is_the_committed_one`,
//!   `c_and_cpp_compilers_see_the_same`
//! - no exported symbol except the entry, and none of the service's libraries:
//!   `libraries_export_their_entry_and_the_service_nothing_of_its_libraries`
//! - sanitizers and an interpreter on the boundary's own code: `cargo xtask soak`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use satcast_tests::author::root;

/// Names between backticks that are not tests.
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
