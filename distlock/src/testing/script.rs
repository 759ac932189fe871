//! What a test has set, and which call meets what.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{Holder, Outage};
use crate::key::LockKey;
use crate::protocol::words::Owner;
use crate::testing::loss::Loss;
use crate::util::clock::Moment;

/// The number of a rule. It is never used again.
pub(crate) type RuleId = u64;

/// Which locks a rule is for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Key(LockKey),
    Label(String),
    All,
}

/// What becomes of a call that meets a rule.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Busy(Holder),
    Unavailable(Outage),
    Foreign(String),
    Lost { after: Duration, how: Loss },
    HoldLimit(Duration),
}

/// What calls, as many as `left` of them, meet until then.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    /// `None`: all calls, and an outage then is one for what is held as well.
    pub(crate) left: Option<u32>,
    pub(crate) until: Option<Moment>,
    pub(crate) outcome: Outcome,
}

/// A lock, as rules see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) label: Option<&'a str>,
}

/// All rules in the order in which they were set: a call meets the first that is for it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    rules: Vec<(RuleId, Rule)>,
    last: RuleId,
    /// Holds whose renewals fail, and the rule that says so, if it was not a command.
    unrenewed: HashMap<Owner, Option<RuleId>>,
}

impl Target {
    fn is_for(&self, subject: Subject<'_>) -> bool {
        match self {
            Target::Key(key) => key.same_lock(subject.key),
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
    /// Whether it is not past. What it has begun for a call goes on also when it is for no further
    /// ones.
    fn is_in_force(&self, now: Moment) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn is_for(&self, subject: Subject<'_>, now: Moment) -> bool {
        self.left != Some(0) && self.is_in_force(now) && self.target.is_for(subject)
    }
}

impl Script {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.last += 1;
        self.rules.push((self.last, rule));
    }

    /// Forgets the rules for these locks, and all that they have begun.
    pub(crate) fn clear(&mut self, target: &Target) {
        self.rules.retain(|(_, rule)| !rule.target.is_same(target));
        let rules = &self.rules;
        let is_set = |id: RuleId| rules.iter().any(|(known, _)| *known == id);
        self.unrenewed.retain(|_, rule| rule.is_none_or(&is_set));
    }

    pub(crate) fn clear_all(&mut self) {
        self.rules.clear();
        self.unrenewed.clear();
    }

    /// A call begins: the rule that it meets.
    pub(crate) fn meet(&mut self, subject: Subject<'_>, now: Moment) -> Option<(RuleId, &Outcome)> {
        let met = (self.rules.iter_mut()).find(|(_, rule)| rule.is_for(subject, now));
        let (id, rule) = met?;
        rule.left = rule.left.map(|left| left.saturating_sub(1));
        Some((*id, &rule.outcome))
    }

    /// What a rule says that a call has met; `None` once it was cleared.
    pub(crate) fn met(&self, id: RuleId) -> Option<&Outcome> {
        let (_, rule) = self.rules.iter().find(|(known, _)| *known == id)?;
        Some(&rule.outcome)
    }

    /// The same; `None` also once it is past.
    pub(crate) fn met_in_force(&self, id: RuleId, now: Moment) -> Option<&Outcome> {
        let (_, rule) = self.rules.iter().find(|(known, _)| *known == id)?;
        rule.is_in_force(now).then_some(&rule.outcome)
    }

    /// The outage of this moment, for whatever is asked about this lock and by whomever.
    pub(crate) fn outage(&self, subject: Subject<'_>, now: Moment) -> Option<Outage> {
        self.rules.iter().find_map(|(_, rule)| match rule.outcome {
            Outcome::Unavailable(outage) if rule.left.is_none() && rule.is_for(subject, now) => {
                Some(outage)
            }
            _ => None,
        })
    }

    /// The outage of this moment, for what is asked about all locks.
    pub(crate) fn outage_of_all(&self, now: Moment) -> Option<Outage> {
        self.rules
            .iter()
            .find_map(|(_, rule)| match (&rule.target, &rule.outcome) {
                (Target::All, Outcome::Unavailable(outage))
                    if rule.left.is_none() && rule.is_in_force(now) =>
                {
                    Some(*outage)
                }
                _ => None,
            })
    }

    /// Who has this lock at this moment, for those who only look.
    pub(crate) fn holder(&self, subject: Subject<'_>, now: Moment) -> Option<&Holder> {
        self.rules.iter().find_map(|(_, rule)| match &rule.outcome {
            Outcome::Busy(holder) if rule.is_for(subject, now) => Some(holder),
            _ => None,
        })
    }

    /// From now on renewals of this hold fail.
    pub(crate) fn renew_no_more(&mut self, owner: Owner, because: Option<RuleId>) {
        self.unrenewed.insert(owner, because);
    }

    pub(crate) fn is_unrenewed(&self, owner: Owner) -> bool {
        self.unrenewed.contains_key(&owner)
    }
}
