//! The test kit in use: annotated functions with busy, unavailable, lost and exceeded locks.

mod busy;
mod errors;
mod happened;
mod kinds;
mod losses;
mod outages;
mod service;
mod worlds;
