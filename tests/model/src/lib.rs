//! Models of distlock's protocols, explored exhaustively with [stateright](https://docs.rs/stateright).
//!
//! Every client is a small state machine, every server is another, and connections are between them. [`lock`] is
//! the hand-off protocol of one server; [`quorum`] is the protocol of several independent servers. The explorer
//! takes every step that can happen next, in every order, and checks the claims in every state ([`Claim`]): at most
//! one body has a valid hold, tokens rise, no waiter is passed, nothing is left behind, and every waiter would be
//! served if no further fault happened. Then it explores again without one of the protocol's rules: the
//! counter-example shows what the rule is for ([`Removal`]).
//!
//! `cargo run --release -p model` prints both tables and the shortest counter-example for each rule;
//! `--deep` adds explorations that take minutes and gigabytes.
//!
//! # Liveness
//!
//! [`Claim::Served`] is checked from every explored state. From there all continuations are followed in which
//! every client and every connection is prompt: no fault, no new call, bodies end, and a tick passes when nothing
//! else is left to do. The ticks are counted until all live clients are served and have taken back what they had
//! to. A continuation that repeats itself or gets stuck is a counter-example, as is one that takes longer than
//! the stated bound ([`Check::served_within`]).

mod calm;
mod explore;
mod hashing;
pub mod lock;
pub mod quorum;
mod scenario;
mod tokens;

pub use explore::{Check, Claim, CounterExample, Report, Search};
pub use scenario::{Removal, Rule, Scenario, Setup};
pub use tokens::Token;

/// A short list without an allocation, because states are copied by the million.
pub type List<T, const N: usize> = tinyvec::ArrayVec<[T; N]>;
