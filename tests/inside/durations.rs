//! The conversion of durations for the server: a TTL of zero would delete the key.

use proptest::prelude::*;

use super::*;
use crate::util::clock::ServerTime;

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conversions_of_any_duration_are_exact_or_saturate(
        long in any::<Duration>(), nanos in any::<u64>(), shift in 0..64u32,
    ) {
        for duration in [long, Duration::from_nanos(nanos >> shift)] {
            let exact = duration.as_nanos().div_ceil(1_000_000);
            prop_assert_eq!(u128::from(millis(duration)), exact.min(u128::from(u64::MAX)));
            prop_assert!((ServerTime(0) + duration).since(ServerTime(0)) <= duration);
        }
    }
}
