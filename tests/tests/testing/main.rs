//! The test kit, used as its users do: annotated functions whose locks are busy, away, lost or held for too long.

mod busy;
mod errors;
mod happened;
mod losses;
mod outages;
mod service;
mod worlds;
