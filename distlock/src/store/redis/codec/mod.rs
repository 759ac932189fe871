//! The protocol's words as commands, and answers as the protocol's words. Nothing here waits,
//! locks, or reads a clock.

pub(super) mod decode;
pub(super) mod encode;
