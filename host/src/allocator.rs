//! Limits the unused memory of the system's allocator. Each of its arenas keeps its own freed memory, and
//! every thread may get one: with a hundred streams that was a fifth of the service's memory (measured).

#[cfg(target_env = "gnu")]
use std::thread::available_parallelism;

/// Variable by which an operator sets the number of arenas.
#[cfg(target_env = "gnu")]
const VARIABLE: &str = "MALLOC_ARENA_MAX";
/// Processors per arena: allocations are rare compared with the work of a thread.
#[cfg(any(target_env = "gnu", test))]
const PROCESSORS_PER_ARENA: usize = 4;

/// Lets threads share arenas, unless the operator has set their number. Call it before any thread starts; false when the
/// system does not support it.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // Sets a number of this process.
pub fn share_arenas() -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let arenas = arenas(available_parallelism().map_or(1, usize::from));
    // SAFETY: two numbers, and no other thread that allocates yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) == 1 }
}

/// Other allocators have no arenas.
#[cfg(not(target_env = "gnu"))]
pub fn share_arenas() -> bool {
    false
}

#[cfg(any(target_env = "gnu", test))]
fn arenas(processors: usize) -> i32 {
    i32::try_from(processors / PROCESSORS_PER_ARENA).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_processors_share_one_and_many_have_some() {
        for (processors, expected) in [(1, 1), (2, 1), (7, 1), (8, 2), (64, 16)] {
            assert_eq!(arenas(processors), expected, "{processors}");
        }
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn the_system_takes_it() {
        assert!(share_arenas());
    }
}
