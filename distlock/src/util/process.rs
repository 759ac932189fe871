//! The process in which a value was created.

/// A process id. A process that `fork` made has a copy of its parent's memory, but neither the
/// threads of the parent nor a right to its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(u32);

impl ProcessId {
    pub(crate) fn current() -> Self {
        ProcessId(std::process::id())
    }

    /// Returns true if the value was created by another process, whose memory this one copied.
    pub(crate) fn is_inherited(self) -> bool {
        self != Self::current()
    }
}
