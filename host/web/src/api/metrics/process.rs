//! The process, under the names that Prometheus has for every service, from `/proc`.

use std::fs::{read_dir, read_to_string};

use super::text::Text;

/// Ticks a second in `/proc/<pid>/stat`: the same on every Linux that Rust's standard library supports.
const TICKS_PER_SEC: u64 = 100;
const KIB: u64 = 1024;
/// Fields of `/proc/<pid>/stat` after the name of the program (proc_pid_stat(5)).
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// A figure that the system does not give is left out.
pub(super) fn process(text: &mut Text) {
    let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
    let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SEC as f64;
    if let (Some(user), Some(system)) = (field(&stat, USER_TICKS), field(&stat, SYSTEM_TICKS)) {
        let help = "Processor time, without isolated drivers";
        text.single("process_cpu_seconds_total", "counter", help, seconds(user + system));
    }
    if let Some(kib) = line(&status, "VmRSS:") {
        text.single("process_resident_memory_bytes", "gauge", "Resident memory", kib * KIB);
    }
    if let Some(kib) = line(&status, "VmSize:") {
        text.single("process_virtual_memory_bytes", "gauge", "Virtual memory", kib * KIB);
    }
    if let Some(threads) = line(&status, "Threads:") {
        text.single("process_threads", "gauge", "Threads", threads);
    }
    if let Ok(open) = read_dir("/proc/self/fd") {
        // The folder itself is open while it is read.
        text.single("process_open_fds", "gauge", "Open files and sockets", open.count().saturating_sub(1));
    }
    let limits = read("/proc/self/limits");
    if let Some(most) = limits.lines().find_map(|line| line.strip_prefix("Max open files")).and_then(first) {
        text.single("process_max_fds", "gauge", "Limit of open files and sockets", most);
    }
    if let (Some(start), Some(boot)) = (field(&stat, START_TICKS), line(&read("/proc/stat"), "btime")) {
        let help = "Unix time of the start";
        text.single("process_start_time_seconds", "gauge", help, boot as f64 + seconds(start));
    }
}

fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

/// The name of the program, in brackets, may hold spaces and brackets itself.
fn field(stat: &str, index: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(index)?.parse().ok()
}

fn line(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)).and_then(first)
}

fn first(values: &str) -> Option<u64> {
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_name_of_the_program() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 1 0 0 0 31 12 0 0 20 0 4 0 4711 1 2";
        let fields = [USER_TICKS, SYSTEM_TICKS, START_TICKS].map(|index| field(stat, index));
        assert_eq!(fields, [Some(31), Some(12), Some(4711)]);
        assert_eq!(line("VmSize:\t 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(line("", "VmRSS:"), None);
    }

    #[test]
    fn this_process_has_every_figure() {
        let mut text = Text::default();
        process(&mut text);
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            assert!(text.0.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} in {}", text.0);
        }
    }
}
