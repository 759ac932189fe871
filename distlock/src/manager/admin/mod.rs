//! What operators ask of a manager.

pub mod doctor;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod unlock;
