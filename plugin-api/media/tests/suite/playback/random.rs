//! Random packet streams, seeded.
