//! Models of distlock's protocols, explored exhaustively with
//! [stateright](https://docs.rs/stateright).
//!
//! Every client and every server is a small state machine, and connections are between them.
//! [`lock`] is the protocol of one server, for a mutex, permits, and readers and writers;
//! [`quorum`] is the protocol of several independent servers; [`keys`] has calls that hold several
//! locks. The explorer takes every possible step, in every order, and checks the claims in every
//! state ([`Claim`]). The valid holds fit together, tokens rise, no waiter is passed, and nothing is
//! left behind. If no further fault happened, every waiter would be served. Then the explorer
//! removes one rule of the protocol at a time: the counter-example shows the purpose of the rule
//! ([`Removal`]).
//!
//! `cargo run --release -p model` prints both tables and the shortest counter-example for each
//! rule; `--deep` adds explorations that take minutes and gigabytes.
//!
//! # Liveness
//!
//! [`Claim::Served`] is checked from every explored state. The explorer follows all continuations
//! in which every client and every connection is prompt. In these, no fault and no new call
//! happens, bodies end, and a tick passes when nothing else is left to do. The ticks are counted
//! until all live clients are served and have released what they had to. A continuation that
//! repeats itself or gets stuck is a counter-example, as is one that takes longer than the stated
//! bound ([`Check::served_within`]).

mod calm;
mod explore;
mod hashing;
pub mod keys;
pub mod lock;
pub mod quorum;
mod scenario;
mod tokens;

pub use explore::{Check, Claim, CounterExample, Report, Search};
pub use scenario::{Removal, Rule, Scenario, Setup};
pub use tokens::Token;

/// A short list without an allocation, because states are copied by the million.
pub type List<T, const N: usize> = tinyvec::ArrayVec<[T; N]>;
