//! No update in a transaction that checked its lock is lost.
//!
//! Each committed transfer recorded in its transaction what it read from an account, and what it
//! wrote. It must have read what the committed transfer before wrote, no fault excuses anything
//! else, and the sum of all balances stays as it was. A transfer that returned `Ok` is committed,
//! and one that was refused because its lock was lost is not.

use std::collections::{BTreeMap, HashSet};

use crate::check::evidence::{Finding, Invariant, Violation};
use crate::check::run::Run;
use crate::check::spans::Span;
use crate::history::{Accounts, Call, Change, Outcome};

pub(super) fn check(run: &Run) -> Finding {
    let mut finding = Finding::new(Invariant::Transfers);
    let Some(table) = &run.accounts else {
        return finding;
    };
    finding.checked = table.changes.len() as u64;
    let end = Span::new(run.span.until, run.span.until);
    let wrong = |finding: &mut Finding, change: Option<&Change>, what: String| {
        let violation = Violation {
            key: change.map_or_else(String::new, |change| format!("b{}", change.account / 2)),
            span: end,
            ops: change.map(|change| change.by).into_iter().collect(),
            tokens: Vec::new(),
            what,
        };
        finding.violation(run, violation);
    };
    for (change, what) in lost(table) {
        wrong(&mut finding, change, what);
    }
    let committed: HashSet<_> = table.changes.iter().map(|change| change.by).collect();
    let (mut refused, mut done) = (0, 0);
    for op in run.ops.iter().filter(|op| op.call == Call::Transfer) {
        let is_committed = committed.contains(&op.id);
        let what = match op.outcome() {
            Some(Outcome::Ok) if !is_committed => "a transfer returned Ok and is not committed",
            Some(Outcome::Stale) if is_committed => "a transfer was refused and is committed",
            _ => "",
        };
        done += u64::from(op.outcome() == Some(Outcome::Ok));
        refused += u64::from(op.outcome() == Some(Outcome::Stale));
        if !what.is_empty() {
            let violation = Violation::of(run, &[op], op.whole(), what.to_owned());
            finding.violation(run, violation);
        }
    }
    finding.note = format!("{done} calls returned Ok, {refused} were refused without the lock");
    finding
}

/// Returns the changes that did not read what the change before wrote, and what is wrong with the
/// accounts.
fn lost(table: &Accounts) -> Vec<(Option<&Change>, String)> {
    let mut wrong = Vec::new();
    let mut of_account: BTreeMap<i64, Vec<&Change>> = BTreeMap::new();
    for change in &table.changes {
        of_account.entry(change.account).or_default().push(change);
    }
    for account in &table.accounts {
        let mut changes = of_account.remove(&account.id).unwrap_or_default();
        // Two that read the same version stay in the order of their commits, as far as it is known.
        changes.sort_by_key(|change| change.version);
        let (mut version, mut balance) = (0, table.balance);
        for change in changes {
            if (change.version, change.before) != (version, balance) {
                let what = format!(
                    "account {}: a transfer read version {} with {}, and the one before wrote version {version} with \
                     {balance}",
                    account.id, change.version, change.before
                );
                wrong.push((Some(change), what));
            }
            (version, balance) = (change.version + 1, change.after);
        }
        if (account.version, account.balance) != (version, balance) {
            let what = format!(
                "account {} has version {} with {}, and its last transfer wrote version {version} with {balance}",
                account.id, account.version, account.balance
            );
            wrong.push((None, what));
        }
    }
    let sum: i64 = table.accounts.iter().map(|account| account.balance).sum();
    let expected = table.balance * table.accounts.len() as i64;
    if sum != expected {
        wrong.push((
            None,
            format!("the sum of all accounts is {sum}, not {expected}"),
        ));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{self, History};
    use crate::history::{Account, OpId, SupervisorEvent};

    fn by(op: u64) -> OpId {
        OpId {
            worker: 1,
            generation: 0,
            op,
        }
    }

    /// Judges two accounts with a balance of 100 each, which have these versions and balances, and
    /// the changes: call, account, version and balance read, balance written.
    fn found(accounts: [(i64, i64); 2], changes: &[(u64, i64, i64, i64, i64)]) -> u64 {
        let mut history = History::default();
        for (op, outcome) in [(1, Outcome::Ok), (2, Outcome::Failed), (3, Outcome::Stale)] {
            let call = testing::Call::new(1, op, "b0", 0).invoked_as(Call::Transfer, 300, 0);
            history.call(
                call.held(10 * op, 10 * op + 1, op)
                    .returned(10 * op + 2, outcome),
            );
        }
        let accounts = (0..).zip(accounts).map(|(id, (version, balance))| Account {
            id,
            balance,
            version,
        });
        let changes = changes
            .iter()
            .map(|&(op, account, version, before, after)| Change {
                by: by(op),
                account,
                version,
                before,
                after,
            });
        history.supervisor.push(SupervisorEvent::Accounts(Accounts {
            balance: 100,
            accounts: accounts.collect(),
            changes: changes.collect(),
        }));
        check(&history.build()).violations
    }

    #[test]
    fn each_transfer_reads_what_the_one_before_wrote() {
        let first = [(1, 0, 0, 100, 97), (1, 1, 0, 100, 103)];
        let second = |version, before, after| (2, 0, version, before, after);
        for (accounts, more, expected) in [
            ([(1, 97), (1, 103)], None, 0),
            ([(2, 97), (1, 103)], Some(second(1, 97, 97)), 0),
            // The sum is wrong.
            ([(2, 90), (1, 103)], Some(second(1, 97, 90)), 1),
            // The first transfer is lost, although the sum is right.
            ([(1, 97), (1, 103)], Some(second(0, 100, 97)), 1),
            // A change that is not recorded, and a record without its change.
            ([(2, 97), (1, 103)], None, 1),
            ([(1, 97), (1, 103)], Some(second(1, 97, 97)), 1),
            // A refused transfer is committed.
            ([(2, 97), (1, 103)], Some((3, 0, 1, 97, 97)), 1),
        ] {
            let changes: Vec<_> = first.into_iter().chain(more).collect();
            assert_eq!(found(accounts, &changes), expected, "{changes:?}");
        }
        // The first call returned Ok and is not there.
        assert_eq!(found([(0, 100), (0, 100)], &[]), 1);
    }
}
