//! The conversion of durations for the server: a TTL of zero would delete the key.

use proptest::prelude::*;

use super::*;
use crate::store::redis::conn::server_time::as_micros;

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn milliseconds_are_rounded_up_and_never_to_zero(nanos in any::<u64>(), shift in 0..64u32) {
        let duration = Duration::from_nanos(nanos >> shift);
        let sent = millis(duration);
        prop_assert_eq!(sent == 0, duration.is_zero());
        prop_assert!(Duration::from_millis(sent) >= duration);
        prop_assert!(Duration::from_millis(sent.saturating_sub(1)) <= duration);
    }

    #[test]
    fn conversions_of_any_duration_are_exact_or_saturate(duration in any::<Duration>()) {
        let exact = duration.as_nanos().div_ceil(1_000_000);
        prop_assert_eq!(u128::from(millis(duration)), exact.min(u128::from(u64::MAX)));
        prop_assert!(Duration::from_micros(as_micros(duration)) <= duration);
    }
}
