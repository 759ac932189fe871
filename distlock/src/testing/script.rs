//! The outcomes that a test has set, and which call meets which.

use std::time::Duration;

use crate::error::{Holder, Outage};
use crate::key::LockKey;
use crate::testing::loss::Loss;
use crate::util::clock::Moment;

/// The number of a rule. It is never used again.
pub(crate) type RuleId = u64;

/// The locks that a rule is for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Key(LockKey),
    Label(String),
    All,
}

/// The outcome of a call that meets a rule.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Busy(Holder),
    Unavailable(Outage),
    Foreign(String),
    Lost { after: Duration, how: Loss },
    HoldLimit(Duration),
}

/// An outcome for up to `left` calls, until a deadline.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    /// `None`: all calls, and an outage then is one for what is held as well.
    pub(crate) left: Option<u32>,
    pub(crate) until: Option<Moment>,
    pub(crate) outcome: Outcome,
}

/// A lock, or all of them, as rules see it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) key: Option<&'a LockKey>,
    pub(crate) label: Option<&'a str>,
}

/// All rules in the order in which they were set: a call meets the first that is for it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<(RuleId, Rule)>,
    last: RuleId,
}

impl Target {
    fn is_for(&self, subject: Subject<'_>) -> bool {
        match self {
            Target::Key(key) => subject.key.is_some_and(|other| key.same_lock(other)),
            Target::Label(label) => subject.label == Some(label),
            Target::All => true,
        }
    }

    fn is_same(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Key(one), Target::Key(other)) => one.same_lock(other),
            (Target::Label(one), Target::Label(other)) => one == other,
            (Target::All, Target::All) => true,
            _ => false,
        }
    }
}

impl Rule {
    /// Returns true until the rule's deadline. What it has begun for a call goes on also when it is
    /// for no further calls.
    pub(crate) fn is_in_force(&self, now: Moment) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.last += 1;
        self.rules.push((self.last, rule));
    }

    /// Removes the rules for a target, or all rules.
    pub(crate) fn clear(&mut self, target: Option<&Target>) {
        let is_kept = |rule: &Rule| target.is_some_and(|target| !rule.target.is_same(target));
        self.rules.retain(|(_, rule)| is_kept(rule));
    }

    /// Uses up one call of the first rule for a subject, and returns the rule.
    pub(crate) fn meet(&mut self, subject: Subject<'_>, now: Moment) -> Option<(RuleId, &Outcome)> {
        let mut rules = self.rules.iter_mut();
        let (id, rule) = rules.find(|(_, rule)| is_for(rule, subject, now))?;
        rule.left = rule.left.map(|left| left.saturating_sub(1));
        Some((*id, &rule.outcome))
    }

    /// Returns a rule; `None` once it was cleared.
    pub(crate) fn rule(&self, id: RuleId) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|(known, _)| *known == id).map(|(_, rule)| rule)
    }

    /// Returns the outage of this moment, which concerns every command for the subject.
    pub(crate) fn outage(&self, subject: Subject<'_>, now: Moment) -> Option<Outage> {
        self.in_force(subject, now)
            .find_map(|rule| match rule.outcome {
                Outcome::Unavailable(outage) if rule.left.is_none() => Some(outage),
                _ => None,
            })
    }

    /// Returns the holder that a rule names.
    pub(crate) fn holder(&self, subject: Subject<'_>, now: Moment) -> Option<&Holder> {
        self.in_force(subject, now)
            .find_map(|rule| match &rule.outcome {
                Outcome::Busy(holder) => Some(holder),
                _ => None,
            })
    }

    fn in_force(&self, subject: Subject<'_>, now: Moment) -> impl Iterator<Item = &Rule> {
        let rules = self.rules.iter().map(|(_, rule)| rule);
        rules.filter(move |rule| is_for(rule, subject, now))
    }
}

fn is_for(rule: &Rule, subject: Subject<'_>, now: Moment) -> bool {
    rule.left != Some(0) && rule.is_in_force(now) && rule.target.is_for(subject)
}
