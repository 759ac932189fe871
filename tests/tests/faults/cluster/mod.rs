//! A cluster: each lock is where its slot is, while slots move and nodes die.

mod handing_on;
