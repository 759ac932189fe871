//! Collects errors to report them all at once, and proposes names that are nearly right.

use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;

/// All errors of one annotated function.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    pub(crate) fn push_at(&mut self, span: Span, message: impl Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Adds an error that underlines all of `tokens`.
    pub(crate) fn push_spanned(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn finish(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Returns the candidate that `word` most likely means.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let tolerated = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = if !word.is_empty() && folded(word) == folded(candidate) {
                0
            } else {
                distance(word, candidate)
            };
            (distance, candidate)
        })
        .filter(|(distance, candidate)| *distance <= tolerated && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the same string for `item_id`, `itemId` and `ITEM_ID`.
fn folded(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Returns the words as "`a`, `b` and `c`".
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Returns the number of edits between two words. A swap of neighbors is one edit.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_proposed_and_far_ones_are_not() {
        let names = ["item_id", "qty", "db"];
        assert_eq!(nearest("itm_id", names), Some("item_id"));
        assert_eq!(nearest("qyt", names), Some("qty"));
        assert_eq!(
            nearest("orderLineNo", ["order_line_no"]),
            Some("order_line_no")
        );
        assert_eq!(nearest("ID", ["id"]), Some("id"));
        assert_eq!(nearest("", ["_"]), None);
        assert_eq!(nearest("warehouse", names), None);
        assert_eq!(nearest("x", ["y"]), None);
    }

    #[test]
    fn lists_read_like_prose() {
        assert_eq!(list([]), "");
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
