//! Time spans: disjoint, sorted, searched by bisection.

use crate::history::Nanos;

/// A time span that includes both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

impl Span {
    pub(crate) fn new(from: Nanos, until: Nanos) -> Span {
        Span { from, until }
    }

    pub(crate) fn length(self) -> Nanos {
        self.until.saturating_sub(self.from)
    }

    pub(crate) fn covers(self, other: Span) -> bool {
        self.from <= other.from && other.until <= self.until
    }

    /// Returns the same span with another beginning.
    pub(crate) fn since(self, from: Nanos) -> Span {
        Span::new(from, self.until)
    }

    pub(crate) fn widened(self, before: Nanos, after: Nanos) -> Span {
        Span::new(self.from.saturating_sub(before), self.until + after)
    }
}

/// A set of moments, as the fewest spans that cover it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    pub(crate) fn of(spans: impl IntoIterator<Item = Span>) -> Spans {
        let mut all: Vec<Span> = spans.into_iter().filter(|s| s.from <= s.until).collect();
        all.sort_unstable();
        let mut merged: Vec<Span> = Vec::with_capacity(all.len());
        for span in all {
            match merged.last_mut() {
                Some(last) if span.from <= last.until => last.until = last.until.max(span.until),
                _ => merged.push(span),
            }
        }
        Spans(merged)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn widened(&self, by: Nanos) -> Spans {
        Spans::of(self.iter().map(|span| span.widened(by, by)))
    }

    /// Returns true if any moment of `span` is in the set.
    pub(crate) fn touches(&self, span: Span) -> bool {
        let first = self.0.partition_point(|s| s.until < span.from);
        self.0.get(first).is_some_and(|s| s.from <= span.until)
    }

    /// Returns the parts of the set within `span`.
    pub(crate) fn within(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let first = self.0.partition_point(|s| s.until < span.from);
        let touching = self.0[first..]
            .iter()
            .take_while(move |s| s.from <= span.until);
        touching.map(move |s| Span::new(s.from.max(span.from), s.until.min(span.until)))
    }

    /// Returns the part of the set outside `others`.
    pub(crate) fn minus(&self, others: &Spans) -> Spans {
        let mut left = Vec::new();
        let mut next = 0;
        for span in &self.0 {
            let mut from = span.from;
            let mut open = true;
            while let Some(other) = others.0.get(next) {
                if other.until < from {
                    next += 1;
                    continue;
                }
                if other.from > span.until {
                    break;
                }
                if other.from > from {
                    left.push(Span::new(from, other.from));
                }
                if other.until >= span.until {
                    open = false;
                    break;
                }
                from = other.until;
                next += 1;
            }
            if open {
                left.push(Span::new(from, span.until));
            }
        }
        Spans(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(of: &[(u64, u64)]) -> Spans {
        Spans::of(of.iter().map(|&(from, until)| Span::new(from, until)))
    }

    #[test]
    fn overlapping_spans_are_merged() {
        assert_eq!(
            spans(&[(5, 6), (1, 3), (2, 4), (4, 4)]),
            spans(&[(1, 4), (5, 6)])
        );
    }

    #[test]
    fn spans_touch_at_their_ends() {
        let set = spans(&[(10, 20), (30, 40)]);
        for (from, until, touches) in [
            (0, 9, false),
            (0, 10, true),
            (15, 16, true),
            (20, 21, true),
            (21, 29, false),
            (25, 50, true),
            (41, 50, false),
        ] {
            assert_eq!(
                set.touches(Span::new(from, until)),
                touches,
                "{from}..{until}"
            );
        }
    }

    #[test]
    fn difference_removes_the_overlap() {
        let set = spans(&[(0, 10), (20, 30), (40, 50)]);
        let within = Spans::of(set.within(Span::new(10, 25)));
        assert_eq!(within, spans(&[(10, 10), (20, 25)]));
        assert_eq!(
            set.minus(&spans(&[(2, 4), (8, 22), (25, 26), (39, 60)])),
            spans(&[(0, 2), (4, 8), (22, 25), (26, 30)])
        );
        let cut = spans(&[(0, 10), (20, 30)]).minus(&spans(&[(5, 25)]));
        assert_eq!(cut, spans(&[(0, 5), (25, 30)]));
        assert_eq!(set.minus(&Spans::default()), set);
        assert_eq!(set.minus(&set), Spans::default());
    }
}
