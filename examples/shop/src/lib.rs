//! Orders over HTTP, one at a time per item in all replicas: axum, PostgreSQL, distlock on Redis.
//!
//! [`shop`] has the locked method, [`stock`] the SQL with the fence column, [`http`] the routes,
//! and `main.rs` the process.

pub mod http;
pub mod shop;
pub mod stock;
