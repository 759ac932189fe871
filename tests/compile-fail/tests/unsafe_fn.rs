//! `async unsafe fn`, in this package because its lints allow unsafe code.
#![deny(warnings)]

use distlock::{Error, LockManager, distributed_lock};

/// Returns true if another task cannot acquire the lock.
async fn excluded(locks: &LockManager) -> bool {
    let lock = locks.lock(distlock::current().key());
    let other = tokio::spawn(async move { lock.try_acquire().await });
    other.await.unwrap().unwrap().is_none()
}

/// # Safety
///
/// `numbers` points to at least `at + 1` bytes.
#[distributed_lock(key = "unsafe:<at>", manager = locks)]
async unsafe fn read(locks: &LockManager, numbers: *const u8, at: usize) -> Result<u8, Error> {
    assert!(excluded(locks).await);
    // SAFETY: the caller ensures this.
    Ok(unsafe { *numbers.add(at) })
}

struct Cell(*mut u8);

impl Cell {
    /// # Safety
    ///
    /// The pointer is valid.
    #[distributed_lock(key = "unsafe:method", manager = locks)]
    async unsafe fn write(&mut self, locks: &LockManager, value: u8) -> Result<(), Error> {
        assert!(excluded(locks).await);
        // SAFETY: the caller ensures this.
        unsafe { *self.0 = value };
        Ok(())
    }
}

#[tokio::test]
async fn unsafe_functions_and_methods_are_locked() {
    let locks = LockManager::in_memory();
    let mut numbers = [1, 2, 3];
    // SAFETY: the array has three elements.
    let two = unsafe { read(&locks, numbers.as_ptr(), 1) };
    assert_eq!(two.await.unwrap(), 2);
    let mut cell = Cell(&mut numbers[2]);
    // SAFETY: the array outlives the call.
    let written = unsafe { cell.write(&locks, 7) };
    written.await.unwrap();
    assert_eq!(numbers, [1, 2, 7]);
}
