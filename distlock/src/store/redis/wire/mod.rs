//! What is written to Redis and read from it: scripts, names of keys, commands, replies and errors.

pub(crate) mod call;
pub(crate) mod commands;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod names;
pub(crate) mod reply;
pub(crate) mod scripts;
pub(crate) mod slots;
pub(crate) mod trouble;
