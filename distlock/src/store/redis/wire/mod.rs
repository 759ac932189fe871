//! The protocol's words as commands, and answers as the protocol's words. Nothing here waits,
//! locks, or reads a clock.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod known;
pub(crate) mod names;
pub(crate) mod reply;
pub(crate) mod scripts;
pub(crate) mod slots;
pub(crate) mod trouble;
