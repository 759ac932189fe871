//! The telemetry of locks: events, metrics, spans and log lines.

// A test says what it expects by unwrapping it.
#![allow(clippy::unwrap_used)]

mod delivery;
mod events;
mod heard;
mod kit;
mod lines;
mod metrics;
mod outages;
mod spans;
