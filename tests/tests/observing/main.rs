//! The telemetry of locks: events, metrics, spans and log lines.

// A test states its expectations by unwrapping them.
#![allow(clippy::unwrap_used)]

mod capture;
mod data_loss;
mod delivery;
mod events;
mod lines;
mod metrics;
mod outages;
mod skips;
mod spans;
mod support;
