//! Common code of the benchmarks: their options, their results, and the tables that are made from these.
//!
//! A benchmark gives each of its measurements to [`results::Results`], which keeps it as a line of JSON. All tables are made from
//! these lines, so that a figure is printed, compared with its goal and written into the documents in one way.
//!
//! * [`Options`]: repeats and window of a command line; [`turns`]: the order of the servers in a repeat
//! * [`results`]: the form of a measurement, written and read; [`machine`]: the machine of a run
//! * [`goals`]: all figures with their units, and the goals of the rows
//! * [`ratios`]: the table of one run; [`compare`]: the table of two; [`growth`]: steps and the law that they follow
//! * [`page`]: the page of the documents; [`columns`]: how a table is printed

pub mod columns;
pub mod compare;
pub mod goals;
pub mod growth;
pub mod machine;
mod options;
pub mod page;
pub mod ratios;
pub mod results;
mod spread;

pub use options::Options;
pub use spread::{Spread, median};

/// The order of `count` servers in a repeat. Each repeat begins with another one, so that a warm machine favours none.
pub fn turns(repeat: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + repeat) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repeat_begins_with_another_server() {
        assert_eq!(turns(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(turns(3, 2).collect::<Vec<_>>(), [1, 0]);
    }
}
