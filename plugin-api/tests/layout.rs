//! The layout of every struct of the C table: as committed, and as C and C++ compilers see it through the header.
//!
//! A change of a committed line breaks every driver in the field: only lines at the end of a struct may be added, and its size with
//! them. `SATCAST_WRITE_LAYOUT=1` writes the file again.
#![cfg(target_pointer_width = "64")]
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use satcast_plugin_api::abi::*;

/// One line for a struct, one for each of its fields.
macro_rules! layout {
    ($($name:ident { $($field:ident),* $(,)? })*) => {{
        let mut text = String::new();
        $(
            writeln!(text, "{} size {} align {}", stringify!($name), size_of::<$name>(), align_of::<$name>()).unwrap();
            $(writeln!(text, "{}.{} offset {}", stringify!($name), stringify!($field), offset_of!($name, $field)).unwrap();)*
        )*
        text
    }};
}

fn in_rust() -> String {
    layout! {
        SatcastStr { ptr, len }
        SatcastKv { key, value }
        SatcastError { size, error_class, retry_ms, reserved, message }
        SatcastErrorSink { data, put }
        SatcastTextSink { data, put }
        SatcastPacket {
            size, flags, kind, codec, track, reserved, source, sequence, dts_ns, pts_ns, data, len, vt
        }
        SatcastPacketVt { size, retain, release }
        SatcastWaker { data, wake, drop }
        SatcastOpen { size, dest, source, type_name, config_json, media, about_json }
        SatcastDriver {
            magic, abi_major, abi_minor, size, flags, id, version, toolchain, manifest_json, init, validate, open, stop,
            destroy, deinit, get_extension
        }
        SatcastReconfigure { size, reconfigure }
        SatcastMetricDesc { size, reserved, name }
        SatcastHost {
            size, abi_minor, flags, max_level, ctx, log, state, event, metric, media_recv, media_release, stopped,
            get_extension
        }
        SatcastNet { size, connect }
        SatcastConnect { size, timeout_ms, host, port, reserved }
        SatcastConnected { data, done }
        SatcastDataDir { size, path }
        SatcastSettings { size, json }
        SatcastWait { size, wait_any }
        SatcastWorking { size, working }
        SatcastPump { size, take, run, give_back }
        SatcastAssets { size, publish, retract, playback }
        SatcastAsset {
            size, name, content_type, max_age_secs, audience, body, source, flags, hold_back_ms, next_sequence, next_part,
            target_ms, delta, hint, number, offset_ns, start_ms, init
        }
        SatcastPlayback { size, entry, preview, first_ms, window_ms, window_max_ms, fresh_ms, flags }
        SatcastDone { data, done }
        SatcastBytesDone { data, done }
        SatcastRecordings { size, list, retry, remove, sign, configured, probe, read, index, announced, keep }
        SatcastRecordingsHost { size, report }
        SatcastVault { size, seal, unseal }
        SatcastBody { kind, reserved, offset, len, data, owner, release }
        SatcastHttp { size, request }
        SatcastHttpRequest { size, dest, token, method, audience, path, query }
        SatcastHttpHost { size, respond }
        SatcastHttpResponse {
            size, status, max_age_secs, content_type, headers, header_count, descriptor, reserved, body, source
        }
    }
}

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

#[test]
fn the_layout_is_the_committed_one() {
    let file = path("tests/layout-64.txt");
    if std::env::var_os("SATCAST_WRITE_LAYOUT").is_some() {
        std::fs::write(&file, in_rust()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), in_rust());
}

/// Layouts of drivers in the field: a struct may only have grown at its end.
#[test]
fn structs_of_earlier_versions_grow_only_at_their_ends() {
    let present = in_rust();
    let find = |name: &str| {
        let line = present.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is gone"))
    };
    let number = |line: &str, at: usize| line.split(' ').nth(at).unwrap().parse::<usize>().unwrap();
    for minor in 1..ABI_MINOR {
        let past = std::fs::read_to_string(path(&format!("tests/layouts/minor-{minor}.txt"))).unwrap();
        let (mut structs, mut fields) = (0, BTreeSet::new());
        for line in past.lines() {
            let name = line.split(' ').next().unwrap();
            if name.contains('.') {
                assert_eq!(find(name), line, "minor version {minor}");
                fields.insert(name);
                continue;
            }
            structs += 1;
            let now = find(name);
            assert_eq!(number(now, 4), number(line, 4), "alignment of {name} of minor version {minor}");
            assert!(number(now, 2) >= number(line, 2), "{name} of minor version {minor} has shrunk");
        }
        assert!(structs > 20 && fields.len() > 90, "{structs} structs, {} fields", fields.len());
        for line in present
            .lines()
            .filter(|line| line.contains('.') && !fields.contains(&line.split(' ').next().unwrap()))
        {
            let of = line.split('.').next().unwrap();
            // A new struct.
            let Some(was) = past.lines().find(|past| past.split(' ').next() == Some(of)) else { continue };
            assert!(
                number(line, 2) >= number(was, 2),
                "{line} is inside the struct of minor version {minor}"
            );
        }
    }
}

#[test]
fn every_struct_of_the_header_is_checked() {
    let header = std::fs::read_to_string(path("include/satcast_driver.h")).unwrap();
    let names = |text: &str, before: &str, after: char| -> BTreeSet<String> {
        let found = text.lines().filter_map(|line| line.strip_prefix(before)?.split_once(after));
        found.map(|(name, _)| name.trim().to_string()).filter(|name| name.starts_with("Satcast")).collect()
    };
    let defined = names(&header, "typedef struct ", '{');
    let listed: BTreeSet<String> = in_rust()
        .lines()
        .filter_map(|line| line.split_once(" size ").map(|(name, _)| name.to_string()))
        .collect();
    assert_eq!(defined, listed);
}

#[test]
fn c_and_cpp_compilers_see_the_same() {
    let compilers = [("gcc", "-std=c11", "c"), ("g++", "-std=c++17", "cc")];
    let others = [("clang", "-std=c11", "c"), ("clang++", "-std=c++17", "cc")];
    let folder = std::env::temp_dir().join(format!("satcast-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut program =
        String::from("#include \"satcast_driver.h\"\n#include <stdio.h>\n\nint main(void)\n{\n");
    for line in in_rust().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = words[0];
        if words[1] == "size" {
            let printed = format!("printf(\"{name} size %zu\\n\", sizeof({name}));");
            writeln!(program, "    {printed}").unwrap();
        } else {
            let (of, field) = name.split_once('.').unwrap();
            let printed = format!("printf(\"{name} offset %zu\\n\", offsetof({of}, {field}));");
            writeln!(program, "    {printed}").unwrap();
        }
    }
    program.push_str("    return 0;\n}\n");
    let expected: String =
        in_rust().lines().map(|line| format!("{}\n", line.split(" align").next().unwrap())).collect();
    for (compiler, standard, ending) in compilers.iter().chain(&others) {
        if Command::new(compiler).arg("--version").output().is_err() {
            assert!(!compilers.iter().any(|(needed, ..)| needed == compiler), "{compiler} is missing");
            println!("skipped: {compiler} is not there");
            continue;
        }
        let source = folder.join(format!("layout.{ending}"));
        std::fs::write(&source, &program).unwrap();
        let binary = folder.join("layout");
        let built = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
            .arg(path("include"))
            .arg("-o")
            .args([&binary, &source])
            .output()
            .unwrap();
        assert!(built.status.success(), "{compiler}: {}", String::from_utf8_lossy(&built.stderr));
        let said = Command::new(&binary).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), expected, "{compiler}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
