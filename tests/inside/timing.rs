//! For every legal lease, the derived durations are consistent, and none is rounded to zero.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::config::options::{MAX_DURATION, MIN_LEASE, Options};
use crate::error::Error;

const MS: Duration = Duration::from_millis(1);

/// Edge cases, and all durations between them on a logarithmic scale.
fn duration() -> impl Strategy<Value = Duration> {
    let edges = vec![
        Duration::ZERO,
        Duration::from_nanos(1),
        MIN_LEASE,
        MAX_DURATION,
        Duration::MAX,
    ];
    prop_oneof![
        3 => (any::<u64>(), 0..64u32).prop_map(|(nanos, shift)| Duration::from_nanos(nanos >> shift)),
        1 => (select(edges), 0..3u32).prop_map(|(edge, by)| match by {
            0 => edge.saturating_sub(Duration::from_nanos(1)),
            1 => edge,
            _ => edge.saturating_add(Duration::from_nanos(1)),
        }),
        1 => any::<Duration>(),
    ]
}

fn legal_lease() -> impl Strategy<Value = Duration> {
    // The range from 50 ms to 100 ms is as likely as the range from 12 h to 24 h.
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap();
    (nanos(MIN_LEASE)..=nanos(MAX_DURATION), 0..21u32)
        .prop_map(move |(nanos, shift)| Duration::from_nanos(nanos >> shift).max(MIN_LEASE))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn durations_are_checked_and_rounded_up(
        lease in duration(), wait in duration(),
        max_hold in prop::option::of(duration()), min_hold in prop::option::of(duration()),
    ) {
        let options = Options { lease: Some(lease), wait: Some(wait), max_hold, min_hold, ..Options::default() };
        let legal = (MIN_LEASE..=MAX_DURATION).contains(&lease)
            && wait <= MAX_DURATION
            && max_hold != Some(Duration::ZERO)
            && min_hold.is_none_or(|hold| hold <= MAX_DURATION)
            && min_hold.is_none_or(|shortest| max_hold.is_none_or(|longest| shortest <= longest))
            && min_hold.is_none_or(|shortest| shortest.is_zero() || wait < shortest);
        match options.check("k") {
            Ok(()) => {
                let timing = Timing::new(lease);
                prop_assert!(legal, "{:?}", options);
                prop_assert!(timing.lease >= lease && timing.lease < lease + MS, "{:?}", timing);
                prop_assert_eq!(timing.lease.subsec_nanos() % 1_000_000, 0, "{:?}", timing);
            }
            Err(error) => {
                prop_assert!(!legal, "{:?}: {}", options, error);
                prop_assert!(matches!(error, Error::Config { .. }), "{:?}", error);
            }
        }
    }

    #[test]
    fn three_renewals_fit_and_the_server_keeps_the_lock_for_longest(lease in legal_lease()) {
        let t = Timing::new(lease);
        let (deadline, every) = (t.command_timeout(), t.renew_interval());
        // Three attempts that all time out end before the hold does.
        prop_assert!(every + 3 * deadline.max(t.renew_retry_interval()) <= t.validity(), "{:?}", t);
        prop_assert!(deadline >= MS && deadline <= Duration::from_secs(1), "{:?}", t);
        prop_assert!(!every.is_zero() && !t.renew_retry_interval().is_zero(), "{:?}", t);
        prop_assert!(t.validity() + t.margin() == t.lease && t.margin() >= t.lease / 100, "{:?}", t);
        prop_assert!(t.ttl() >= t.lease + Duration::from_millis(250), "{:?}", t);
        // A grant is short, and is confirmed long before it ends.
        let grant = t.short_grant_timing();
        prop_assert!(grant.lease <= t.lease && grant.lease <= Duration::from_secs(1), "{:?}", t);
        prop_assert!(t.confirm_delay() + 3 * grant.command_timeout() < grant.validity(), "{:?}", t);
    }

    #[test]
    fn arithmetic_holds_for_any_lease(lease in duration()) {
        // A message of the store may contain any lease.
        let t = Timing::new(lease);
        let all = [t.lease, t.ttl(), t.command_timeout(), t.renew_interval(), t.short_grant_timing().lease, t.confirm_delay()];
        prop_assert!(all.into_iter().all(|duration| duration <= t.ttl()), "{:?}", t);
        prop_assert!(t.validity() <= t.lease, "{:?}", t);
    }
}
