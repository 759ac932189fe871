//! A shop over HTTP whose orders take turns, item by item, in all replicas: axum, PostgreSQL, and distlock over Redis.
//!
//! [`shop`] has the locked method, [`stock`] the SQL with the fence column, [`http`] the routes and what errors become,
//! and `main.rs` the start and the end of the process.

pub mod http;
pub mod shop;
pub mod stock;
