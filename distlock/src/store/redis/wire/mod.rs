//! The data exchanged with Redis: scripts, key names, commands, replies and errors.

pub(crate) mod call;
pub(crate) mod commands;
pub(crate) mod counted;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod errors;
pub(crate) mod names;
pub(crate) mod scripts;
pub(crate) mod status;
