//! The rules that a test has set.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::error::{Holder, Outage};
use crate::key::LockKey;
use crate::testing::loss::InjectedLoss;

/// The number of a rule. It is never reused.
pub(crate) type RuleId = usize;

/// The locks that a rule applies to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// The key with its hash tag, which is the same for every way to write the key.
    Key(String),
    Label(String),
    All,
    /// No lock; the rule is only used by its number.
    None,
}

/// The outcome of a call that takes a rule.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Busy(Holder),
    AlreadyRan(SystemTime),
    Unavailable(Outage),
    KeyConflict(String),
    Lost { after: Duration, loss: InjectedLoss },
    MaxHold(Duration),
}

/// An outcome for up to `left` calls, until a deadline.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    /// `None` for all calls; an outage then also affects held locks.
    pub(crate) left: Option<u32>,
    pub(crate) until: Option<Instant>,
    pub(crate) outcome: Outcome,
}

/// All rules in the order in which they were set; a call takes the first that applies to it. A
/// cleared rule is `None`.
#[derive(Debug, Default)]
pub(crate) struct Script(Vec<Option<Rule>>);

impl Target {
    pub(crate) fn key(key: &LockKey) -> Self {
        Target::Key(key.tagged().to_string())
    }

    /// Returns the targets of all rules that apply to this lock.
    pub(crate) fn of(key: Option<&LockKey>, label: Option<&str>) -> Vec<Self> {
        let label = label.map(|label| Target::Label(label.to_owned()));
        let all = [Some(Target::All), key.map(Target::key), label];
        all.into_iter().flatten().collect()
    }
}

impl Rule {
    /// Returns true until the rule's deadline. Ignores `left`, because a call keeps its rule.
    pub(crate) fn is_in_force(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    fn is_for(&self, targets: &[Target]) -> bool {
        self.left != Some(0) && self.is_in_force() && targets.contains(&self.target)
    }
}

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) -> RuleId {
        self.0.push(Some(rule));
        self.0.len() - 1
    }

    /// Removes the rules for a target, or all rules.
    pub(crate) fn clear(&mut self, target: Option<&Target>) {
        for rule in &mut self.0 {
            rule.take_if(|rule| target.is_none_or(|target| rule.target == *target));
        }
    }

    /// Uses up one call of the first rule for these targets, and returns the rule's number.
    pub(crate) fn meet(&mut self, targets: &[Target]) -> Option<RuleId> {
        let is_for = |rule: &Option<Rule>| rule.as_ref().is_some_and(|rule| rule.is_for(targets));
        let id = self.0.iter().position(is_for)?;
        let left = &mut self.0[id].as_mut()?.left;
        *left = left.map(|left| left - 1);
        Some(id)
    }

    /// Returns a rule; `None` once it has been cleared.
    pub(crate) fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.0.get(id)?.as_ref()
    }

    /// Returns the current outage, which affects every command for these targets.
    pub(crate) fn outage(&self, targets: &[Target]) -> Option<Outage> {
        self.in_force(targets).find_map(|rule| match rule.outcome {
            Outcome::Unavailable(outage) if rule.left.is_none() => Some(outage),
            _ => None,
        })
    }

    /// Returns the holder that a rule names.
    pub(crate) fn holder(&self, targets: &[Target]) -> Option<&Holder> {
        self.in_force(targets).find_map(|rule| match &rule.outcome {
            Outcome::Busy(holder) => Some(holder),
            _ => None,
        })
    }

    fn in_force(&self, targets: &[Target]) -> impl Iterator<Item = &Rule> {
        let rules = self.0.iter().flatten();
        rules.filter(move |rule| rule.is_for(targets))
    }
}
