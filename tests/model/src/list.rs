//! A short list without an allocation: states are cloned by the million.

use std::fmt;
use std::hash::{Hash, Hasher};

/// At most `N` items in order. What is not used is the default, so that equal lists are equal bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct List<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Hash, const N: usize> Hash for List<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        for item in &self.items[..usize::from(self.len)] {
            item.hash(state);
        }
    }
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        List {
            len: 0,
            items: [T::default(); N],
        }
    }
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    /// The items, first to last.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items[..usize::from(self.len)].iter_mut()
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == N
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.as_slice().first().copied()
    }

    /// Appends. The capacities are such that what the model does always fits.
    pub(crate) fn push(&mut self, item: T) {
        assert!(!self.is_full(), "a list of the model is too short");
        self.items[self.len()] = item;
        self.len += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.first()?;
        self.retain_indexed(|index, _| index > 0);
        Some(first)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.retain_indexed(|_, item| keep(item));
    }

    pub(crate) fn clear(&mut self) {
        *self = List::default();
    }

    fn retain_indexed(&mut self, mut keep: impl FnMut(usize, &T) -> bool) {
        let mut kept = List::default();
        for (index, item) in self.iter().enumerate() {
            if keep(index, item) {
                kept.items[usize::from(kept.len)] = *item;
                kept.len += 1;
            }
        }
        *self = kept;
    }
}

impl<T: fmt::Debug + Copy + Default, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_leaves_no_trace() {
        let mut list: List<u8, 3> = List::default();
        list.push(1);
        list.push(2);
        list.push(3);
        assert!(list.is_full());
        assert_eq!(list.pop_front(), Some(1));
        list.retain(|item| *item != 3);
        let mut same = List::default();
        same.push(2);
        assert_eq!(list, same);
    }
}
